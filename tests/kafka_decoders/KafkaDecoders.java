import com.fasterxml.jackson.core.json.JsonWriteFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import kafka.api.LeaderAndIsr;
import kafka.cluster.Broker;
import kafka.cluster.EndPoint;
import kafka.controller.LeaderIsrAndControllerEpoch;
import kafka.controller.ReplicaAssignment;
import kafka.server.ConfigHandler;
import kafka.server.ZkConfigManager;
import kafka.utils.Json;
import kafka.zk.AdminZkClient;
import kafka.zk.BrokerIdZNode;
import kafka.zk.ClusterIdZNode;
import kafka.zk.ConfigEntityZNode;
import kafka.zk.ControllerEpochZNode;
import kafka.zk.ControllerZNode;
import kafka.zk.FeatureZNode;
import kafka.zk.IsrChangeNotificationSequenceZNode;
import kafka.zk.LogDirEventNotificationSequenceZNode;
import kafka.zk.PreferredReplicaElectionZNode;
import kafka.zk.ProducerIdBlockZNode;
import kafka.zk.ReassignPartitionsZNode;
import kafka.zk.TopicPartitionStateZNode;
import kafka.zk.TopicZNode;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.server.common.ProducerIdsBlock;
import org.apache.zookeeper.data.Stat;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Kafka's own decoders. Reads lines {"znode": KIND, "data": BASE64}, answers each with one line: {"value": ...}, {"none":
 * true} for what Kafka passes over in silence, or {"refused": the exception}.
 */
public final class KafkaDecoders {
    interface Decoder {
        /** Null: passed over. */
        Object decode(byte[] data) throws Throwable;
    }

    /** Halves of surrogate pairs have no UTF-8. */
    private static final ObjectMapper MAPPER =
        JsonMapper.builder().enable(JsonWriteFeature.ESCAPE_NON_ASCII).build();
    private static final Map<String, Decoder> DECODERS = new HashMap<>();

    static {
        DECODERS.put("controller", data -> orNull(ControllerZNode.decode(data)));
        DECODERS.put("controller_epoch", ControllerEpochZNode::decode);
        DECODERS.put("broker", data -> broker(BrokerIdZNode.decode(7, data).broker()));
        DECODERS.put("topic", data -> isJson(data) ? topic(TopicZNode.decode("t", data)) : null);
        DECODERS.put("state", data -> state(TopicPartitionStateZNode.decode(data, new Stat())));
        DECODERS.put("election", data -> {
            var found = PreferredReplicaElectionZNode.decode(data);
            return isJson(data) ? partitions(CollectionConverters.asJava(found)) : null;
        });
        DECODERS.put("isr_change", data -> {
            var found = IsrChangeNotificationSequenceZNode.decode(data);
            return isJson(data) ? partitions(CollectionConverters.asJava(found)) : null;
        });
        DECODERS.put("reassignment", KafkaDecoders::reassignment);
        DECODERS.put("log_dir_event", data -> orNull(LogDirEventNotificationSequenceZNode.decode(data)));
        DECODERS.put("config", data -> {
            Properties found = ConfigEntityZNode.decode(data);
            return data.length == 0 || isJson(data) ? new TreeMap<>(found) : null;
        });
        DECODERS.put("config_change", KafkaDecoders::configChange);
        DECODERS.put("producer_ids", data -> {
            ProducerIdsBlock block = ProducerIdBlockZNode.parseProducerIdBlockData(data);
            return List.of(block.assignedBrokerId(), block.firstProducerId(), block.lastProducerId());
        });
        DECODERS.put("cluster_id", ClusterIdZNode::fromJson);
        DECODERS.put("feature", data -> {
            FeatureZNode found = FeatureZNode.decode(data);
            var levels = new TreeMap<Object, Object>(CollectionConverters.asJava(found.features()));
            return fields("enabled", found.status().id() == 1, "features", levels);
        });
    }

    private static boolean isJson(byte[] data) {
        return Json.parseBytes(data).isDefined();
    }

    private static Object orNull(Option<?> found) {
        return found.isDefined() ? found.get() : null;
    }

    private static Map<String, Object> fields(Object... pairs) {
        var named = new LinkedHashMap<String, Object>();
        for (int i = 0; i < pairs.length; i += 2) {
            named.put((String) pairs[i], pairs[i + 1]);
        }
        return named;
    }

    /** Unboxes: Kafka keeps the elements of some lists unread until it needs them as numbers. */
    private static List<Integer> ids(scala.collection.Iterable<?> found) {
        var ids = new ArrayList<Integer>();
        for (Object id : CollectionConverters.asJava(found)) {
            ids.add((int) (Integer) id);
        }
        return ids;
    }

    private static Object partitions(Iterable<TopicPartition> found) {
        var listed = new ArrayList<List<Object>>();
        for (TopicPartition partition : found) {
            listed.add(List.of(partition.topic(), partition.partition()));
        }
        return listed;
    }

    private static Object broker(Broker broker) {
        var endpoints = new ArrayList<List<Object>>();
        for (EndPoint endpoint : CollectionConverters.asJava(broker.endPoints())) {
            String host = endpoint.host() == null ? "" : endpoint.host();
            String listener = endpoint.listenerName().value();
            endpoints.add(List.of(listener, endpoint.securityProtocol().name, host, endpoint.port()));
        }
        var features = new TreeMap<String, Object>();
        broker.features().features().forEach((name, range) -> features.put(name, List.of(range.min(), range.max())));
        return fields("endpoints", endpoints, "rack", orNull(broker.rack()), "features", features);
    }

    private static Object topic(TopicZNode.TopicIdReplicaAssignment found) {
        var replicas = new TreeMap<Integer, Object>();
        var adding = new TreeMap<Integer, Object>();
        var removing = new TreeMap<Integer, Object>();
        CollectionConverters.asJava(found.assignment()).forEach((TopicPartition partition, ReplicaAssignment assigned) -> {
            replicas.put(partition.partition(), ids(assigned.replicas()));
            if (!assigned.addingReplicas().isEmpty()) {
                adding.put(partition.partition(), ids(assigned.addingReplicas()));
            }
            if (!assigned.removingReplicas().isEmpty()) {
                removing.put(partition.partition(), ids(assigned.removingReplicas()));
            }
        });
        Object id = found.topicId().isDefined() ? found.topicId().get().toString() : "";
        return fields("topic_id", id, "partitions", replicas, "adding", adding, "removing", removing);
    }

    private static Object state(Option<LeaderIsrAndControllerEpoch> found) {
        if (found.isEmpty()) {
            return null;
        }
        LeaderAndIsr state = found.get().leaderAndIsr();
        return fields(
            "leader", state.leader(),
            "leader_epoch", state.leaderEpoch(),
            "isr", ids(state.isr()),
            "controller_epoch", found.get().controllerEpoch(),
            "recovery", (int) state.leaderRecoveryState().value());
    }

    private static Object reassignment(byte[] data) throws Throwable {
        var found = ReassignPartitionsZNode.decode(data);
        if (found.isLeft()) {
            throw found.left().toOption().get();
        }
        var listed = new ArrayList<List<Object>>();
        CollectionConverters.asJava(found.toOption().get()).forEach((partition, replicas) ->
            listed.add(List.of(partition.topic(), partition.partition(), ids(replicas))));
        return listed;
    }

    /** What a broker is told of a notification; what is stored for the entity is not read. */
    private static Object configChange(byte[] data) throws Throwable {
        var told = new ArrayList<String>();
        var handlers = new scala.collection.mutable.HashMap<String, ConfigHandler>();
        for (String type : List.of("topics", "clients", "users", "brokers", "ips")) {
            handlers.put(type, (name, config) -> told.add(type + "/" + name));
        }
        var manager = new ZkConfigManager(null, handlers);
        var client = ZkConfigManager.class.getDeclaredField("adminZkClient");
        client.setAccessible(true);
        client.set(manager, new AdminZkClient(null, Option.empty()) {
            @Override
            public Properties fetchEntityConfig(String type, String name) {
                return new Properties();
            }
        });
        manager.ConfigChangedNotificationHandler().processNotification(data);
        return told.isEmpty() ? null : told.get(0);
    }

    private static Map<String, Object> answer(String line) throws Exception {
        JsonNode asked = MAPPER.readTree(line);
        Decoder decoder = DECODERS.get(asked.get("znode").textValue());
        byte[] data = Base64.getDecoder().decode(asked.get("data").textValue());
        try {
            Object value = decoder.decode(data);
            return value == null ? fields("none", true) : fields("value", value);
        } catch (VirtualMachineError error) {
            throw error;
        } catch (Throwable refusal) {
            String message = refusal.getClass().getSimpleName() + ": " + refusal.getMessage();
            return fields("refused", message.substring(0, Math.min(message.length(), 100)));
        }
    }

    public static void main(String[] args) throws Exception {
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var output = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            output.println(MAPPER.writeValueAsString(answer(line)));
        }
    }
}
