-- Wireshark dissector for the wire protocol of Pravega's segment stores.
--
-- Generated from pravega_wire/protocol/commands.py by scripts/gen_wireshark.py; do not edit.
-- Copy it to Wireshark's folder of personal Lua plugins, or use: tshark -X lua_script:pravega.lua
-- Connections are recognised by their first frame. For those whose beginning was not captured, use
-- "Decode As", or: tshark -d tcp.port==12345,pravega

local pravega = Proto("pravega", "Pravega segment store")

local MAX_BODY = 16777215
local FIXED_HEADER = 8

local f = {}
f["code"] = ProtoField.int32("pravega.code", "Command code", base.DEC)
f["command"] = ProtoField.string("pravega.command", "Command")
f["body_length"] = ProtoField.int32("pravega.body_length", "Body length", base.DEC)
f["count"] = ProtoField.int32("pravega.count", "Number of elements", base.DEC)
f["unknown"] = ProtoField.bytes("pravega.unknown", "Bytes after the last known field")
f["args.continuation_token"] = ProtoField.bytes("pravega.args.continuation_token", "args.continuation_token")
f["args.from_key"] = ProtoField.bytes("pravega.args.from_key", "args.from_key")
f["args.prefix_filter"] = ProtoField.bytes("pravega.args.prefix_filter", "args.prefix_filter")
f["args.to_key"] = ProtoField.bytes("pravega.args.to_key", "args.to_key")
f["at_tail"] = ProtoField.bool("pravega.at_tail", "at_tail")
f["attribute_id"] = ProtoField.guid("pravega.attribute_id", "attribute_id")
f["attribute_updates.attribute_id"] = ProtoField.guid("pravega.attribute_updates.attribute_id", "attribute_updates.attribute_id")
f["attribute_updates.new_value"] = ProtoField.int64("pravega.attribute_updates.new_value", "attribute_updates.new_value", base.DEC)
f["attribute_updates.old_value"] = ProtoField.int64("pravega.attribute_updates.old_value", "attribute_updates.old_value", base.DEC)
f["attribute_updates.update_type"] = ProtoField.int8("pravega.attribute_updates.update_type", "attribute_updates.update_type", base.DEC)
f["chunks.chunk_name"] = ProtoField.string("pravega.chunks.chunk_name", "chunks.chunk_name")
f["chunks.exists_in_storage"] = ProtoField.bool("pravega.chunks.exists_in_storage", "chunks.exists_in_storage")
f["chunks.length_in_metadata"] = ProtoField.int64("pravega.chunks.length_in_metadata", "chunks.length_in_metadata", base.DEC)
f["chunks.length_in_storage"] = ProtoField.int64("pravega.chunks.length_in_storage", "chunks.length_in_storage", base.DEC)
f["chunks.start_offset"] = ProtoField.int64("pravega.chunks.start_offset", "chunks.start_offset", base.DEC)
f["container_id"] = ProtoField.int32("pravega.container_id", "container_id", base.DEC)
f["continuation_token"] = ProtoField.bytes("pravega.continuation_token", "continuation_token")
f["correct_host"] = ProtoField.string("pravega.correct_host", "correct_host")
f["current_segment_write_offset"] = ProtoField.int64("pravega.current_segment_write_offset", "current_segment_write_offset", base.DEC)
f["data"] = ProtoField.bytes("pravega.data", "data")
f["delegation_token"] = ProtoField.string("pravega.delegation_token", "delegation_token")
f["end_of_segment"] = ProtoField.bool("pravega.end_of_segment", "end_of_segment")
f["entries.key.data"] = ProtoField.bytes("pravega.entries.key.data", "entries.key.data")
f["entries.key.version"] = ProtoField.int64("pravega.entries.key.version", "entries.key.version", base.DEC)
f["entries.value"] = ProtoField.bytes("pravega.entries.value", "entries.value")
f["entry_count"] = ProtoField.int64("pravega.entry_count", "entry_count", base.DEC)
f["error_code"] = ProtoField.int32("pravega.error_code", "error_code", base.DEC)
f["event"] = ProtoField.bytes("pravega.event", "event")
f["event_number"] = ProtoField.int64("pravega.event_number", "event_number", base.DEC)
f["exists"] = ProtoField.bool("pravega.exists", "exists")
f["expected_offset"] = ProtoField.int64("pravega.expected_offset", "expected_offset", base.DEC)
f["expected_value"] = ProtoField.int64("pravega.expected_value", "expected_value", base.DEC)
f["from_position"] = ProtoField.int64("pravega.from_position", "from_position", base.DEC)
f["high_version"] = ProtoField.int32("pravega.high_version", "high_version", base.DEC)
f["is_deleted"] = ProtoField.bool("pravega.is_deleted", "is_deleted")
f["is_sealed"] = ProtoField.bool("pravega.is_sealed", "is_sealed")
f["key_length"] = ProtoField.int32("pravega.key_length", "key_length", base.DEC)
f["keys.data"] = ProtoField.bytes("pravega.keys.data", "keys.data")
f["keys.version"] = ProtoField.int64("pravega.keys.version", "keys.version", base.DEC)
f["last_event_number"] = ProtoField.int64("pravega.last_event_number", "last_event_number", base.DEC)
f["last_modified"] = ProtoField.int64("pravega.last_modified", "last_modified", base.DEC)
f["last_position"] = ProtoField.int64("pravega.last_position", "last_position", base.DEC)
f["length"] = ProtoField.int64("pravega.length", "length", base.DEC)
f["low_version"] = ProtoField.int32("pravega.low_version", "low_version", base.DEC)
f["message"] = ProtoField.string("pravega.message", "message")
f["must_be_empty"] = ProtoField.bool("pravega.must_be_empty", "must_be_empty")
f["new_target_write_offset"] = ProtoField.int64("pravega.new_target_write_offset", "new_target_write_offset", base.DEC)
f["new_value"] = ProtoField.int64("pravega.new_value", "new_value", base.DEC)
f["num_events"] = ProtoField.int32("pravega.num_events", "num_events", base.DEC)
f["offset"] = ProtoField.int64("pravega.offset", "offset", base.DEC)
f["operation_name"] = ProtoField.string("pravega.operation_name", "operation_name")
f["parent_segment"] = ProtoField.string("pravega.parent_segment", "parent_segment")
f["previous_event_number"] = ProtoField.int64("pravega.previous_event_number", "previous_event_number", base.DEC)
f["reached_end"] = ProtoField.bool("pravega.reached_end", "reached_end")
f["request_id"] = ProtoField.int64("pravega.request_id", "request_id", base.DEC)
f["rollover_size_bytes"] = ProtoField.int64("pravega.rollover_size_bytes", "rollover_size_bytes", base.DEC)
f["scale_type"] = ProtoField.int8("pravega.scale_type", "scale_type", base.DEC)
f["segment"] = ProtoField.string("pravega.segment", "segment")
f["segment_name"] = ProtoField.string("pravega.segment_name", "segment_name")
f["server_stack_trace"] = ProtoField.string("pravega.server_stack_trace", "server_stack_trace")
f["should_clear"] = ProtoField.bool("pravega.should_clear", "should_clear")
f["size_of_whole_events"] = ProtoField.int32("pravega.size_of_whole_events", "size_of_whole_events", base.DEC)
f["sorted_deprecated"] = ProtoField.bool("pravega.sorted_deprecated", "sorted_deprecated")
f["source"] = ProtoField.string("pravega.source", "source")
f["source_segment_ids"] = ProtoField.string("pravega.source_segment_ids", "source_segment_ids")
f["sources.new_target_write_offset"] = ProtoField.int64("pravega.sources.new_target_write_offset", "sources.new_target_write_offset", base.DEC)
f["sources.source"] = ProtoField.string("pravega.sources.source", "sources.source")
f["start_offset"] = ProtoField.int64("pravega.start_offset", "start_offset", base.DEC)
f["success"] = ProtoField.bool("pravega.success", "success")
f["suggested_entry_count"] = ProtoField.int32("pravega.suggested_entry_count", "suggested_entry_count", base.DEC)
f["suggested_key_count"] = ProtoField.int32("pravega.suggested_key_count", "suggested_key_count", base.DEC)
f["suggested_length"] = ProtoField.int32("pravega.suggested_length", "suggested_length", base.DEC)
f["table_entries.key.data"] = ProtoField.bytes("pravega.table_entries.key.data", "table_entries.key.data")
f["table_entries.key.version"] = ProtoField.int64("pravega.table_entries.key.version", "table_entries.key.version", base.DEC)
f["table_entries.value"] = ProtoField.bytes("pravega.table_entries.value", "table_entries.value")
f["table_segment_offset"] = ProtoField.int64("pravega.table_segment_offset", "table_segment_offset", base.DEC)
f["target"] = ProtoField.string("pravega.target", "target")
f["target_rate"] = ProtoField.int32("pravega.target_rate", "target_rate", base.DEC)
f["target_segment_id"] = ProtoField.string("pravega.target_segment_id", "target_segment_id")
f["truncation_offset"] = ProtoField.int64("pravega.truncation_offset", "truncation_offset", base.DEC)
f["updated_versions"] = ProtoField.int64("pravega.updated_versions", "updated_versions", base.DEC)
f["value"] = ProtoField.int64("pravega.value", "value", base.DEC)
f["write_offset"] = ProtoField.int64("pravega.write_offset", "write_offset", base.DEC)
f["writer_id"] = ProtoField.guid("pravega.writer_id", "writer_id")
f["zeros"] = ProtoField.bytes("pravega.zeros", "zeros")

pravega.fields = f

local malformed = ProtoExpert.new(
    "pravega.malformed", "Malformed frame", expert.group.MALFORMED, expert.severity.ERROR)
pravega.experts = { malformed }

-- A cursor over the body of a frame. An error is a table, so that it is told from a mistake in this script.
local function fail(reason)
    error({ reason = reason }, 0)
end

local function take(cursor, count)
    if count < 0 then
        fail("a field has a negative length (" .. count .. ")")
    end
    if cursor.at + count > cursor.limit then
        fail("a field of " .. count .. " bytes is announced, " .. (cursor.limit - cursor.at) .. " are left")
    end
    local start = cursor.at
    cursor.at = start + count
    return start
end

local function piece(cursor, start, count)
    return cursor.tvb(start, count)
end

local function number(cursor, tree, name, size)
    local start = take(cursor, size)
    tree:add(f[name], piece(cursor, start, size))
end

local function int32(cursor)
    local start = take(cursor, 4)
    return cursor.tvb(start, 4):int()
end

local function add_bytes(cursor, tree, name, start, count)
    if count == 0 then
        -- Wireshark has no empty ranges here: the field is shown without a place.
        tree:add(f[name], ByteArray.new():tvb("empty")()):set_generated()
    else
        tree:add(f[name], piece(cursor, start, count))
    end
end

-- What looks like a JSON web token is not shown in texts either, such as messages of errors.
local function without_tokens(text)
    local part = "[%w_=%-]"
    text = text:gsub("eyJ" .. part .. "+%." .. part .. "+%." .. part .. "*", "[hidden]")
    return (text:gsub("eyJ" .. part .. "+%." .. part .. "+", "[hidden]"))
end

local read = {}

function read.int64(cursor, tree, name) number(cursor, tree, name, 8) end
function read.int32(cursor, tree, name) number(cursor, tree, name, 4) end
function read.int8(cursor, tree, name) number(cursor, tree, name, 1) end
function read.bool(cursor, tree, name) number(cursor, tree, name, 1) end
function read.guid(cursor, tree, name) number(cursor, tree, name, 16) end

function read.string(cursor, tree, name)
    local start = take(cursor, 2)
    local count = cursor.tvb(start, 2):uint()
    take(cursor, count)
    local range = piece(cursor, start, count + 2)
    if name == "delegation_token" then
        tree:add(f[name], range, count > 0 and "[hidden]" or "")
    elseif count == 0 then
        tree:add(f[name], range, "")
    else
        tree:add(f[name], range, without_tokens(piece(cursor, start + 2, count):string(ENC_UTF_8)))
    end
end

function read.bytes(cursor, tree, name)
    local count = int32(cursor)
    local start = take(cursor, count)
    add_bytes(cursor, tree, name, start, count)
end

function read.rest(cursor, tree, name)
    local start = cursor.at
    local count = cursor.limit - start
    cursor.at = cursor.limit
    add_bytes(cursor, tree, name, start, count)
end

function read.event(cursor, tree, name)
    local kind = int32(cursor)
    if kind ~= 0 then
        fail("an event has type " .. kind .. " instead of 0")
    end
    read.bytes(cursor, tree, name)
end

-- An empty key has no version.
function read.key(cursor, tree, name)
    int32(cursor)
    local count = int32(cursor)
    local start = take(cursor, count)
    add_bytes(cursor, tree, name .. ".data", start, count)
    if count > 0 then
        read.int64(cursor, tree, name .. ".version")
    end
end

local function list(item)
    return function(cursor, tree, name)
        local start = cursor.at
        local count = int32(cursor)
        if count < 0 then
            fail("a list of " .. count .. " elements is announced")
        end
        local inner = tree:add(cursor.tvb(start), name .. ": " .. count)
        inner:add(f["count"], piece(cursor, start, 4))
        for _ = 1, count do
            item(cursor, inner, name)
        end
        inner:set_len(cursor.at - start)
    end
end

read.int64s = list(read.int64)
read.strings = list(read.string)
read.keys = list(read.key)
read.entries = list(function(cursor, tree, name)
    read.key(cursor, tree, name .. ".key")
    int32(cursor)
    read.bytes(cursor, tree, name .. ".value")
end)
read.sources = list(function(cursor, tree, name)
    read.string(cursor, tree, name .. ".source")
    read.int64(cursor, tree, name .. ".new_target_write_offset")
end)
read.attributes = list(function(cursor, tree, name)
    read.guid(cursor, tree, name .. ".attribute_id")
    read.int8(cursor, tree, name .. ".update_type")
    read.int64(cursor, tree, name .. ".new_value")
    read.int64(cursor, tree, name .. ".old_value")
end)
read.chunks = list(function(cursor, tree, name)
    read.int64(cursor, tree, name .. ".length_in_metadata")
    read.int64(cursor, tree, name .. ".length_in_storage")
    read.int64(cursor, tree, name .. ".start_offset")
    read.string(cursor, tree, name .. ".chunk_name")
    read.bool(cursor, tree, name .. ".exists_in_storage")
end)

function read.iterator(cursor, tree, name)
    for _, part in ipairs({ "continuation_token", "prefix_filter", "from_key", "to_key" }) do
        -- Older peers end the body early.
        if cursor.at < cursor.limit then
            read.bytes(cursor, tree, name .. "." .. part)
        end
    end
end

local commands = {}
commands[-127] = { name = "Hello", fields = {
    { name = "high_version", read = read.int32, optional = false },
    { name = "low_version", read = read.int32, optional = false },
} }
commands[-6] = { name = "StorageChunksListed", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "chunks", read = read.chunks, optional = false },
} }
commands[-5] = { name = "ListStorageChunks", fields = {
    { name = "segment", read = read.string, optional = false },
    { name = "delegation_token", read = read.string, optional = false },
    { name = "request_id", read = read.int64, optional = false },
} }
commands[-4] = { name = "StorageFlushed", fields = {
    { name = "request_id", read = read.int64, optional = false },
} }
commands[-3] = { name = "FlushToStorage", fields = {
    { name = "container_id", read = read.int32, optional = false },
    { name = "delegation_token", read = read.string, optional = false },
    { name = "request_id", read = read.int64, optional = false },
} }
commands[-2] = { name = "PartialEvent", fields = {
    { name = "data", read = read.rest, optional = false },
} }
commands[-1] = { name = "Padding", fields = {
    { name = "zeros", read = read.rest, optional = false },
} }
commands[0] = { name = "Event", fields = {
    { name = "data", read = read.rest, optional = false },
} }
commands[1] = { name = "SetupAppend", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "writer_id", read = read.guid, optional = false },
    { name = "segment", read = read.string, optional = false },
    { name = "delegation_token", read = read.string, optional = false },
} }
commands[2] = { name = "AppendSetup", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "segment", read = read.string, optional = false },
    { name = "writer_id", read = read.guid, optional = false },
    { name = "last_event_number", read = read.int64, optional = false },
} }
commands[3] = { name = "AppendBlock", fields = {
    { name = "writer_id", read = read.guid, optional = false },
    { name = "data", read = read.rest, optional = false },
} }
commands[4] = { name = "AppendBlockEnd", fields = {
    { name = "writer_id", read = read.guid, optional = false },
    { name = "size_of_whole_events", read = read.int32, optional = false },
    { name = "data", read = read.bytes, optional = false },
    { name = "num_events", read = read.int32, optional = false },
    { name = "last_event_number", read = read.int64, optional = false },
    { name = "request_id", read = read.int64, optional = true },
} }
commands[5] = { name = "ConditionalAppend", fields = {
    { name = "writer_id", read = read.guid, optional = false },
    { name = "event_number", read = read.int64, optional = false },
    { name = "expected_offset", read = read.int64, optional = false },
    { name = "event", read = read.event, optional = false },
    { name = "request_id", read = read.int64, optional = true },
} }
commands[7] = { name = "DataAppended", fields = {
    { name = "writer_id", read = read.guid, optional = false },
    { name = "event_number", read = read.int64, optional = false },
    { name = "previous_event_number", read = read.int64, optional = true },
    { name = "request_id", read = read.int64, optional = true },
    { name = "current_segment_write_offset", read = read.int64, optional = true },
} }
commands[8] = { name = "ConditionalCheckFailed", fields = {
    { name = "writer_id", read = read.guid, optional = false },
    { name = "event_number", read = read.int64, optional = false },
    { name = "request_id", read = read.int64, optional = true },
} }
commands[9] = { name = "ReadSegment", fields = {
    { name = "segment", read = read.string, optional = false },
    { name = "offset", read = read.int64, optional = false },
    { name = "suggested_length", read = read.int32, optional = false },
    { name = "delegation_token", read = read.string, optional = false },
    { name = "request_id", read = read.int64, optional = true },
} }
commands[10] = { name = "SegmentRead", fields = {
    { name = "segment", read = read.string, optional = false },
    { name = "offset", read = read.int64, optional = false },
    { name = "at_tail", read = read.bool, optional = false },
    { name = "end_of_segment", read = read.bool, optional = false },
    { name = "data", read = read.bytes, optional = false },
    { name = "request_id", read = read.int64, optional = true },
} }
commands[11] = { name = "GetStreamSegmentInfo", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "segment_name", read = read.string, optional = false },
    { name = "delegation_token", read = read.string, optional = false },
} }
commands[12] = { name = "StreamSegmentInfo", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "segment_name", read = read.string, optional = false },
    { name = "exists", read = read.bool, optional = false },
    { name = "is_sealed", read = read.bool, optional = false },
    { name = "is_deleted", read = read.bool, optional = false },
    { name = "last_modified", read = read.int64, optional = false },
    { name = "write_offset", read = read.int64, optional = false },
    { name = "start_offset", read = read.int64, optional = true },
} }
commands[20] = { name = "CreateSegment", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "segment", read = read.string, optional = false },
    { name = "target_rate", read = read.int32, optional = false },
    { name = "scale_type", read = read.int8, optional = false },
    { name = "delegation_token", read = read.string, optional = false },
    { name = "rollover_size_bytes", read = read.int64, optional = true },
} }
commands[21] = { name = "SegmentCreated", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "segment", read = read.string, optional = false },
} }
commands[28] = { name = "SealSegment", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "segment", read = read.string, optional = false },
    { name = "delegation_token", read = read.string, optional = false },
} }
commands[29] = { name = "SegmentSealed", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "segment", read = read.string, optional = false },
} }
commands[30] = { name = "DeleteSegment", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "segment", read = read.string, optional = false },
    { name = "delegation_token", read = read.string, optional = false },
} }
commands[31] = { name = "SegmentDeleted", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "segment", read = read.string, optional = false },
} }
commands[32] = { name = "UpdateSegmentPolicy", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "segment", read = read.string, optional = false },
    { name = "target_rate", read = read.int32, optional = false },
    { name = "scale_type", read = read.int8, optional = false },
    { name = "delegation_token", read = read.string, optional = false },
} }
commands[33] = { name = "SegmentPolicyUpdated", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "segment", read = read.string, optional = false },
} }
commands[34] = { name = "GetSegmentAttribute", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "segment_name", read = read.string, optional = false },
    { name = "attribute_id", read = read.guid, optional = false },
    { name = "delegation_token", read = read.string, optional = false },
} }
commands[35] = { name = "SegmentAttribute", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "value", read = read.int64, optional = false },
} }
commands[36] = { name = "UpdateSegmentAttribute", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "segment_name", read = read.string, optional = false },
    { name = "attribute_id", read = read.guid, optional = false },
    { name = "new_value", read = read.int64, optional = false },
    { name = "expected_value", read = read.int64, optional = false },
    { name = "delegation_token", read = read.string, optional = false },
} }
commands[37] = { name = "SegmentAttributeUpdated", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "success", read = read.bool, optional = false },
} }
commands[38] = { name = "TruncateSegment", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "segment", read = read.string, optional = false },
    { name = "truncation_offset", read = read.int64, optional = false },
    { name = "delegation_token", read = read.string, optional = false },
} }
commands[39] = { name = "SegmentTruncated", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "segment", read = read.string, optional = false },
} }
commands[40] = { name = "CreateTransientSegment", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "writer_id", read = read.guid, optional = false },
    { name = "parent_segment", read = read.string, optional = false },
    { name = "delegation_token", read = read.string, optional = false },
} }
commands[50] = { name = "WrongHost", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "segment", read = read.string, optional = false },
    { name = "correct_host", read = read.string, optional = false },
    { name = "server_stack_trace", read = read.string, optional = true },
} }
commands[51] = { name = "SegmentIsSealed", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "segment", read = read.string, optional = false },
    { name = "server_stack_trace", read = read.string, optional = true },
    { name = "offset", read = read.int64, optional = true },
} }
commands[52] = { name = "SegmentAlreadyExists", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "segment", read = read.string, optional = false },
    { name = "server_stack_trace", read = read.string, optional = true },
} }
commands[53] = { name = "NoSuchSegment", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "segment", read = read.string, optional = false },
    { name = "server_stack_trace", read = read.string, optional = true },
    { name = "offset", read = read.int64, optional = true },
} }
commands[55] = { name = "InvalidEventNumber", fields = {
    { name = "writer_id", read = read.guid, optional = false },
    { name = "request_id", read = read.int64, optional = false },
    { name = "server_stack_trace", read = read.string, optional = true },
    { name = "event_number", read = read.int64, optional = true },
} }
commands[56] = { name = "SegmentIsTruncated", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "segment", read = read.string, optional = false },
    { name = "start_offset", read = read.int64, optional = false },
    { name = "server_stack_trace", read = read.string, optional = true },
    { name = "offset", read = read.int64, optional = true },
} }
commands[57] = { name = "OperationUnsupported", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "operation_name", read = read.string, optional = false },
    { name = "server_stack_trace", read = read.string, optional = true },
} }
commands[58] = { name = "MergeSegments", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "target", read = read.string, optional = false },
    { name = "source", read = read.string, optional = false },
    { name = "delegation_token", read = read.string, optional = false },
    { name = "attribute_updates", read = read.attributes, optional = true },
} }
commands[59] = { name = "SegmentsMerged", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "target", read = read.string, optional = false },
    { name = "source", read = read.string, optional = false },
    { name = "new_target_write_offset", read = read.int64, optional = true },
} }
commands[60] = { name = "AuthTokenCheckFailed", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "server_stack_trace", read = read.string, optional = true },
    { name = "error_code", read = read.int32, optional = true },
} }
commands[61] = { name = "ErrorMessage", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "segment", read = read.string, optional = false },
    { name = "message", read = read.string, optional = false },
    { name = "error_code", read = read.int32, optional = false },
} }
commands[68] = { name = "GetTableSegmentInfo", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "segment_name", read = read.string, optional = false },
    { name = "delegation_token", read = read.string, optional = false },
} }
commands[69] = { name = "TableSegmentInfo", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "segment_name", read = read.string, optional = false },
    { name = "start_offset", read = read.int64, optional = false },
    { name = "length", read = read.int64, optional = false },
    { name = "entry_count", read = read.int64, optional = false },
    { name = "key_length", read = read.int32, optional = false },
} }
commands[70] = { name = "CreateTableSegment", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "segment", read = read.string, optional = false },
    { name = "delegation_token", read = read.string, optional = false },
    { name = "sorted_deprecated", read = read.bool, optional = true },
    { name = "key_length", read = read.int32, optional = true },
    { name = "rollover_size_bytes", read = read.int64, optional = true },
} }
commands[71] = { name = "DeleteTableSegment", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "segment", read = read.string, optional = false },
    { name = "must_be_empty", read = read.bool, optional = false },
    { name = "delegation_token", read = read.string, optional = false },
} }
commands[74] = { name = "UpdateTableEntries", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "segment", read = read.string, optional = false },
    { name = "delegation_token", read = read.string, optional = false },
    { name = "table_entries", read = read.entries, optional = false },
    { name = "table_segment_offset", read = read.int64, optional = true },
} }
commands[75] = { name = "TableEntriesUpdated", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "updated_versions", read = read.int64s, optional = false },
} }
commands[76] = { name = "RemoveTableKeys", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "segment", read = read.string, optional = false },
    { name = "delegation_token", read = read.string, optional = false },
    { name = "keys", read = read.keys, optional = false },
    { name = "table_segment_offset", read = read.int64, optional = true },
} }
commands[77] = { name = "TableKeysRemoved", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "segment", read = read.string, optional = false },
} }
commands[78] = { name = "ReadTable", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "segment", read = read.string, optional = false },
    { name = "delegation_token", read = read.string, optional = false },
    { name = "keys", read = read.keys, optional = false },
} }
commands[79] = { name = "TableRead", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "segment", read = read.string, optional = false },
    { name = "entries", read = read.entries, optional = false },
} }
commands[80] = { name = "TableSegmentNotEmpty", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "segment", read = read.string, optional = false },
    { name = "server_stack_trace", read = read.string, optional = false },
} }
commands[81] = { name = "TableKeyDoesNotExist", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "segment", read = read.string, optional = false },
    { name = "server_stack_trace", read = read.string, optional = false },
} }
commands[82] = { name = "TableKeyBadVersion", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "segment", read = read.string, optional = false },
    { name = "server_stack_trace", read = read.string, optional = false },
} }
commands[83] = { name = "ReadTableKeys", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "segment", read = read.string, optional = false },
    { name = "delegation_token", read = read.string, optional = false },
    { name = "suggested_key_count", read = read.int32, optional = false },
    { name = "args", read = read.iterator, optional = false },
} }
commands[84] = { name = "TableKeysRead", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "segment", read = read.string, optional = false },
    { name = "keys", read = read.keys, optional = false },
    { name = "continuation_token", read = read.bytes, optional = false },
} }
commands[85] = { name = "ReadTableEntries", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "segment", read = read.string, optional = false },
    { name = "delegation_token", read = read.string, optional = false },
    { name = "suggested_entry_count", read = read.int32, optional = false },
    { name = "args", read = read.iterator, optional = false },
} }
commands[86] = { name = "TableEntriesRead", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "segment", read = read.string, optional = false },
    { name = "entries", read = read.entries, optional = false },
    { name = "continuation_token", read = read.bytes, optional = false },
} }
commands[87] = { name = "TableEntriesDeltaRead", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "segment", read = read.string, optional = false },
    { name = "entries", read = read.entries, optional = false },
    { name = "should_clear", read = read.bool, optional = false },
    { name = "reached_end", read = read.bool, optional = false },
    { name = "last_position", read = read.int64, optional = false },
} }
commands[88] = { name = "ReadTableEntriesDelta", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "segment", read = read.string, optional = false },
    { name = "delegation_token", read = read.string, optional = false },
    { name = "from_position", read = read.int64, optional = false },
    { name = "suggested_entry_count", read = read.int32, optional = false },
} }
commands[89] = { name = "ConditionalBlockEnd", fields = {
    { name = "writer_id", read = read.guid, optional = false },
    { name = "event_number", read = read.int64, optional = false },
    { name = "expected_offset", read = read.int64, optional = false },
    { name = "data", read = read.bytes, optional = false },
    { name = "request_id", read = read.int64, optional = false },
} }
commands[90] = { name = "MergeSegmentsBatch", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "target_segment_id", read = read.string, optional = false },
    { name = "source_segment_ids", read = read.strings, optional = false },
    { name = "delegation_token", read = read.string, optional = false },
} }
commands[91] = { name = "SegmentsBatchMerged", fields = {
    { name = "request_id", read = read.int64, optional = false },
    { name = "target", read = read.string, optional = false },
    { name = "sources", read = read.sources, optional = false },
} }
commands[100] = { name = "KeepAlive", fields = {
} }

local function dissect_frame(tvb, pinfo, root)
    local code = tvb(0, 4):int()
    local command = commands[code]
    local name = command and command.name or ("command " .. code)
    local tree = root:add(pravega, tvb(), "Pravega, " .. name)
    tree:add(f["code"], tvb(0, 4))
    tree:add(f["command"], tvb(0, 4), name):set_generated()
    tree:add(f["body_length"], tvb(4, 4))
    pinfo.cols.protocol = "Pravega"
    pinfo.cols.info:append(" " .. name)
    pinfo.cols.info:fence()
    if not command then
        tree:add_proto_expert_info(malformed, name .. " does not exist in wire version 16")
        return tvb:len()
    end
    local cursor = { tvb = tvb, at = FIXED_HEADER, limit = tvb:len() }
    local done, problem = pcall(function()
        for _, each in ipairs(command.fields) do
            if each.optional and cursor.at >= cursor.limit then
                return
            end
            each.read(cursor, tree, each.name)
        end
    end)
    if not done then
        if type(problem) ~= "table" then
            error(problem, 0)
        end
        tree:add_proto_expert_info(malformed, problem.reason)
    elseif cursor.at < cursor.limit then
        tree:add(f["unknown"], tvb(cursor.at))
    end
    return tvb:len()
end

local function frame_length(tvb, _, offset)
    local length = tvb(offset + 4, 4):int()
    if length < 0 or length > MAX_BODY then
        -- There is no telling where the next frame begins: show what there is as one.
        return tvb:len() - offset
    end
    return FIXED_HEADER + length
end

function pravega.dissector(tvb, pinfo, root)
    pinfo.cols.info:set("")
    dissect_tcp_pdus(tvb, root, FIXED_HEADER, frame_length, dissect_frame)
    return tvb:len()
end

-- Every connection begins with a Hello from each side.
local function is_pravega(tvb, pinfo, root)
    if tvb:len() < FIXED_HEADER or tvb(0, 4):int() ~= -127 or tvb(4, 4):int() ~= 8 then
        return false
    end
    pinfo.conversation = pravega
    pravega.dissector(tvb, pinfo, root)
    return true
end

pravega:register_heuristic("tcp", is_pravega)
DissectorTable.get("tcp.port"):add_for_decode_as(pravega)
