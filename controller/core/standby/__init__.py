"""What a candidate keeps ready while another controller leads. Not here: how it is read and kept up to date
(`controller.runtime.zookeeper`)."""
