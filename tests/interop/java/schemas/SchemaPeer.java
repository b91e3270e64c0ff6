import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.google.protobuf.DescriptorProtos.FileDescriptorProto;
import com.google.protobuf.DescriptorProtos.FileDescriptorSet;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DynamicMessage;
import com.google.protobuf.Timestamp;
import io.pravega.client.stream.Serializer;
import io.pravega.client.stream.impl.JavaSerializer;
import io.pravega.schemaregistry.client.SchemaRegistryClientConfig;
import io.pravega.schemaregistry.contract.data.SchemaInfo;
import io.pravega.schemaregistry.serializer.avro.schemas.AvroSchema;
import io.pravega.schemaregistry.serializer.json.schemas.JSONSchema;
import io.pravega.schemaregistry.serializer.protobuf.schemas.ProtobufSchema;
import io.pravega.schemaregistry.serializer.shared.codec.Codecs;
import io.pravega.schemaregistry.serializer.shared.impl.SerializerConfig;
import io.pravega.schemaregistry.serializers.SerializerFactory;
import io.pravega.schemaregistry.serializers.WithSchema;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.Serializable;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;
import org.apache.avro.io.JsonEncoder;

/**
 * Java's schema serializers behind standard input and output; the form of requests and answers is that of
 * InteropPeer.
 *
 * <p>Values travel as base64: of Avro's JSON form, of a JSON text, or of a message's bytes.
 */
public final class SchemaPeer {
    private final SchemaRegistryClientConfig registry;
    private final Map<String, Serializer<Object>> kept = new HashMap<>();

    private SchemaPeer(URI uri) {
        this.registry = SchemaRegistryClientConfig.builder().schemaRegistryUri(uri).build();
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        System.setOut(System.err);
        SchemaPeer peer = new SchemaPeer(URI.create(args[0]));
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        out.println("OK");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                for (String each : peer.answer(line.split("\t", -1))) {
                    out.println("D\t" + each);
                }
                out.println("OK");
            } catch (Throwable error) {
                String message = String.valueOf(error.getMessage()).replaceAll("\\s+", " ");
                out.println("ERR\t" + error.getClass().getSimpleName() + "\t" + message);
            }
        }
        System.exit(0);
    }

    private List<String> answer(String[] words) throws Exception {
        List<String> answer = new ArrayList<>();
        switch (words[0]) {
            case "write":
                answer.add(write(words));
                break;
            case "read":
                answer.add(read(words[1], words[2], words[3], bytes(words[4])));
                break;
            case "read-any":
                answer.add(readAny(words[1], bytes(words[2])));
                break;
            case "write-with-schema":
                answer.add(writeWithSchema(words));
                break;
            case "read-with-schema":
                answer.add(readWithSchema(words[1], bytes(words[2])));
                break;
            case "object-write":
                answer.add(text(objects().serialize(object(words[1], words[2]))));
                break;
            case "object-read":
                Object value = objects().deserialize(ByteBuffer.wrap(bytes(words[1])));
                answer.add(value.getClass().getName() + "\t" + described(value));
                break;
            default:
                throw new IllegalArgumentException(words[0]);
        }
        return answer;
    }

    private SerializerConfig config(String group, String codec, boolean register, boolean header) {
        Codecs chosen = codec.equals("gzip") ? Codecs.GzipCompressor
            : codec.equals("snappy") ? Codecs.SnappyCompressor : Codecs.None;
        return SerializerConfig.builder().groupId(group).registryConfig(registry).encoder(chosen.getCodec())
            .registerSchema(register).registerCodec(register && chosen != Codecs.None)
            .writeEncodingHeader(header).build();
    }

    /** Command: write group format codec register header type schema value. */
    @SuppressWarnings("unchecked")
    private String write(String[] words) throws Exception {
        String format = words[2];
        SerializerConfig config = config(words[1], words[3], words[4].equals("true"), words[5].equals("true"));
        byte[] schema = bytes(words[7]);
        byte[] value = bytes(words[8]);
        String key = String.join(" ", words[1], format, words[3], words[4], words[5], words[6], words[7]);
        Serializer<Object> serializer = kept.get(key);
        Object object;
        if (format.equals("Avro")) {
            Schema avro = new Schema.Parser().parse(new String(schema, StandardCharsets.UTF_8));
            object = new GenericDatumReader<Object>(avro).read(null, DecoderFactory.get().jsonDecoder(
                avro, new String(value, StandardCharsets.UTF_8)));
            if (serializer == null) {
                serializer = SerializerFactory.avroSerializer(config, AvroSchema.of(avro));
            }
        } else if (format.equals("Json")) {
            object = new ObjectMapper().readTree(value);
            if (serializer == null) {
                serializer = (Serializer<Object>) (Serializer<?>) SerializerFactory.jsonSerializer(config,
                    JSONSchema.of(words[6], new String(schema, StandardCharsets.UTF_8), JsonNode.class));
            }
        } else {
            FileDescriptorSet files = FileDescriptorSet.parseFrom(schema);
            object = DynamicMessage.parseFrom(descriptor(files, words[6]), value);
            if (serializer == null) {
                serializer = (Serializer<Object>) (Serializer<?>) SerializerFactory.protobufSerializer(config,
                    ProtobufSchema.of(words[6], files));
            }
        }
        kept.put(key, serializer);
        return text(serializer.serialize(object));
    }

    /** What the generic deserializer of a format reads; with a reader schema in Avro's case, or "-". */
    private String read(String group, String format, String schema, byte[] payload) throws Exception {
        SerializerConfig config = config(group, "none", false, true);
        ByteBuffer data = ByteBuffer.wrap(payload);
        if (format.equals("Avro")) {
            AvroSchema<Object> reader = schema.equals("-") ? null
                : AvroSchema.of(new Schema.Parser().parse(new String(bytes(schema), StandardCharsets.UTF_8)));
            return encoded(avroJson(SerializerFactory.avroGenericDeserializer(config, reader).deserialize(data)));
        }
        if (format.equals("Json")) {
            return encoded(SerializerFactory.jsonStringDeserializer(config).deserialize(data)
                .getBytes(StandardCharsets.UTF_8));
        }
        return encoded(
            SerializerFactory.protobufGenericDeserializer(config, null).deserialize(data).toByteArray());
    }

    /** What the deserializer for all formats reads: the value's class, and the value. */
    private String readAny(String group, byte[] payload) throws Exception {
        Object value = SerializerFactory.genericDeserializer(config(group, "none", false, true))
            .deserialize(ByteBuffer.wrap(payload));
        if (value instanceof DynamicMessage) {
            return "Protobuf\t" + encoded(((DynamicMessage) value).toByteArray());
        }
        if (value instanceof JsonNode) {
            return "Json\t" + encoded(value.toString().getBytes(StandardCharsets.UTF_8));
        }
        return "Avro\t" + encoded(avroJson(value));
    }

    /** Command: write-with-schema group format codec type schema value; of Protobuf a Timestamp of so many seconds. */
    @SuppressWarnings("unchecked")
    private String writeWithSchema(String[] words) throws Exception {
        String key = String.join(" ", "with", words[1], words[3]);
        Serializer<Object> serializer = kept.get(key);
        if (serializer == null) {
            serializer = (Serializer<Object>) (Serializer<?>) SerializerFactory.serializerWithSchema(
                config(words[1], words[3], true, true));
            kept.put(key, serializer);
        }
        String schema = new String(bytes(words[5]), StandardCharsets.UTF_8);
        String value = new String(bytes(words[6]), StandardCharsets.UTF_8);
        Object object;
        if (words[2].equals("Avro")) {
            Schema avro = new Schema.Parser().parse(schema);
            object = WithSchema.avro(new GenericDatumReader<Object>(avro).read(null,
                DecoderFactory.get().jsonDecoder(avro, value)), AvroSchema.of(avro));
        } else if (words[2].equals("Json")) {
            object = WithSchema.json(new ObjectMapper().readTree(value),
                JSONSchema.of(words[4], schema, JsonNode.class));
        } else {
            object = WithSchema.proto(Timestamp.newBuilder().setSeconds(Long.parseLong(value)).build(),
                ProtobufSchema.of(Timestamp.class));
        }
        return text(serializer.serialize(object));
    }

    /** What the deserializer of values with their schemas reads: the schema's format, and the value. */
    private String readWithSchema(String group, byte[] payload) throws Exception {
        WithSchema<Object> found = SerializerFactory.deserializerWithSchema(config(group, "none", false, true))
            .deserialize(ByteBuffer.wrap(payload));
        Object value = found.getTransformed();
        if (found.hasProtobufSchema()) {
            return "Protobuf\t" + encoded(((DynamicMessage) value).toByteArray());
        }
        if (found.hasJsonSchema()) {
            return "Json\t" + encoded(value.toString().getBytes(StandardCharsets.UTF_8));
        }
        return "Avro\t" + encoded(avroJson(value));
    }

    private static byte[] avroJson(Object value) throws Exception {
        Schema schema = ((GenericRecord) value).getSchema();
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        JsonEncoder encoder = EncoderFactory.get().jsonEncoder(schema, out);
        new GenericDatumWriter<Object>(schema).write(value, encoder);
        encoder.flush();
        return out.toByteArray();
    }

    private static Descriptor descriptor(FileDescriptorSet files, String name) throws Exception {
        for (FileDescriptorProto each : files.getFileList()) {
            FileDescriptor file = FileDescriptor.buildFrom(each, new FileDescriptor[0]);
            for (Descriptor type : file.getMessageTypes()) {
                if (type.getFullName().equals(name)) {
                    return type;
                }
            }
        }
        throw new IllegalArgumentException(name);
    }

    @SuppressWarnings("unchecked")
    private static JavaSerializer<Serializable> objects() {
        return new JavaSerializer<>();
    }

    private static Serializable object(String type, String given) {
        switch (type) {
            case "String":
                return new String(bytes(given), StandardCharsets.UTF_16BE);
            case "Integer":
                return Integer.valueOf(given);
            case "Long":
                return Long.valueOf(given);
            case "Short":
                return Short.valueOf(given);
            case "Byte":
                return Byte.valueOf(given);
            case "Double":
                return Double.longBitsToDouble(Long.parseLong(given));
            case "Float":
                return Float.intBitsToFloat(Integer.parseInt(given));
            case "Boolean":
                return Boolean.valueOf(given);
            case "Character":
                return (char) Integer.parseInt(given);
            case "bytes":
                return bytes(given);
            case "List":
                return new ArrayList<>(List.of(given));
            default:
                throw new IllegalArgumentException(type);
        }
    }

    private static String described(Object value) {
        if (value instanceof String) {
            return encoded(((String) value).getBytes(StandardCharsets.UTF_16BE));
        }
        if (value instanceof Double) {
            return Long.toString(Double.doubleToRawLongBits((Double) value));
        }
        if (value instanceof Float) {
            return Integer.toString(Float.floatToRawIntBits((Float) value));
        }
        if (value instanceof Character) {
            return Integer.toString((Character) value);
        }
        return value instanceof byte[] ? encoded((byte[]) value) : value.toString();
    }

    private static byte[] bytes(String text) {
        return Base64.getDecoder().decode(text);
    }

    private static String encoded(byte[] data) {
        return Base64.getEncoder().encodeToString(data);
    }

    private static String text(ByteBuffer data) {
        byte[] copy = new byte[data.remaining()];
        data.get(copy);
        return encoded(copy);
    }
}
