#!/usr/bin/env python3
"""Write ``docs/wireshark/pravega.lua`` from the declarative source; ``--check`` only compares."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "wireshark" / "pravega.lua"

# The fields of the elements of lists, and of the arguments of an iteration: name and type in Wireshark.
PARTS = {
    "ITER": (
        ("continuation_token", "bytes"), ("prefix_filter", "bytes"), ("from_key", "bytes"),
        ("to_key", "bytes"),
    ),
    "list<i64>": (("", "int64"),),
    "list<utf>": (("", "string"),),
    "list<utf i64>": (("source", "string"), ("new_target_write_offset", "int64")),
    "list<KEY>": (("data", "bytes"), ("version", "int64")),
    "ENTRIES": (("key.data", "bytes"), ("key.version", "int64"), ("value", "bytes")),
    "list<ATTR>": (
        ("attribute_id", "guid"), ("update_type", "int8"), ("new_value", "int64"), ("old_value", "int64"),
    ),
    "list<CHUNK>": (
        ("length_in_metadata", "int64"), ("length_in_storage", "int64"), ("start_offset", "int64"),
        ("chunk_name", "string"), ("exists_in_storage", "bool"),
    ),
}  # fmt: skip

PLAIN = {
    "i64": "int64",
    "i32": "int32",
    "i8": "int8",
    "bool": "bool",
    "utf": "string",
    "uuid": "guid",
    "bytes": "bytes",
    "raw": "bytes",
    "EVENT": "bytes",
}

HEAD = """-- Wireshark dissector for the wire protocol of Pravega's segment stores.
--
-- Generated from pravega_wire/protocol/commands.py by scripts/gen_wireshark.py; do not edit.
-- Copy it to Wireshark's folder of personal Lua plugins, or use: tshark -X lua_script:pravega.lua
-- Connections are recognised by their first frame. For those whose beginning was not captured, use
-- "Decode As", or: tshark -d tcp.port==12345,pravega

local pravega = Proto("pravega", "Pravega segment store")

local MAX_BODY = @MAX_BODY@
local FIXED_HEADER = 8

local f = {}
f["code"] = ProtoField.int32("pravega.code", "Command code", base.DEC)
f["command"] = ProtoField.string("pravega.command", "Command")
f["body_length"] = ProtoField.int32("pravega.body_length", "Body length", base.DEC)
f["count"] = ProtoField.int32("pravega.count", "Number of elements", base.DEC)
f["unknown"] = ProtoField.bytes("pravega.unknown", "Bytes after the last known field")
"""

FUNCTIONS = """
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
"""

TAIL = """
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
        tree:add_proto_expert_info(malformed, name .. " does not exist in wire version @VERSION@")
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
    if tvb:len() < FIXED_HEADER or tvb(0, 4):int() ~= @HELLO@ or tvb(4, 4):int() ~= 8 then
        return false
    end
    pinfo.conversation = pravega
    pravega.dissector(tvb, pinfo, root)
    return true
end

pravega:register_heuristic("tcp", is_pravega)
DissectorTable.get("tcp.port"):add_for_decode_as(pravega)
"""

# Stands for the type of a field that every frame has: a command's field cannot have its name.
COMMON = "of every frame"

READERS = {
    "i64": "int64",
    "i32": "int32",
    "i8": "int8",
    "bool": "bool",
    "utf": "string",
    "uuid": "guid",
    "bytes": "bytes",
    "raw": "rest",
    "EVENT": "event",
    "ITER": "iterator",
    "list<i64>": "int64s",
    "list<utf>": "strings",
    "list<utf i64>": "sources",
    "list<KEY>": "keys",
    "ENTRIES": "entries",
    "list<ATTR>": "attributes",
    "list<CHUNK>": "chunks",
}


def fields_of(name: str, kind: str) -> list[tuple[str, str]]:
    """The names and types that a field has in Wireshark."""
    if kind in PLAIN:
        return [(name, PLAIN[kind])]
    return [(f"{name}.{part}".removesuffix("."), type_) for part, type_ in PARTS[kind]]


def render() -> str:
    from pravega_wire.protocol.codec import MAX_DECODED_BODY
    from pravega_wire.protocol.commands import COMMANDS, WIRE_VERSION_HIGH, Hello, field_specs

    types = dict.fromkeys(("code", "command", "body_length", "count", "unknown"), COMMON)
    rows = []
    for code in sorted(COMMANDS):
        specs = field_specs(COMMANDS[code])
        entries = []
        for each in specs:
            for name, kind in fields_of(each.name, each.kind):
                if types.setdefault(name, kind) != kind:
                    raise SystemExit(f"field {name} is {types[name]} in one command and {kind} in another")
            entries.append(
                f'{{ name = "{each.name}", read = read.{READERS[each.kind]}, '
                f"optional = {str(each.optional).lower()} }}"
            )
        rows.append(f'commands[{code}] = {{ name = "{COMMANDS[code].__name__}", fields = {{')
        rows += [f"    {entry}," for entry in entries]
        rows.append("} }")
    lines = []
    for name, kind in sorted(types.items()):
        if kind == COMMON:
            continue  # it is in HEAD
        decimal = ", base.DEC" if kind.startswith("int") else ""
        lines.append(f'f["{name}"] = ProtoField.{kind}("pravega.{name}", "{name}"{decimal})')
    text = (
        HEAD + "\n".join(lines) + "\n" + FUNCTIONS + "\nlocal commands = {}\n" + "\n".join(rows) + "\n" + TAIL
    )
    for mark, value in (
        ("@MAX_BODY@", MAX_DECODED_BODY), ("@VERSION@", WIRE_VERSION_HIGH), ("@HELLO@", Hello.CODE),
    ):  # fmt: skip
        text = text.replace(mark, str(value))
    return text


def main() -> int:
    wanted = render()
    if "--check" in sys.argv[1:]:
        if not TARGET.exists() or TARGET.read_text() != wanted:
            print(f"{TARGET} is out of date: run scripts/gen_wireshark.py", file=sys.stderr)
            return 1
        print(f"{TARGET.name} is up to date")
        return 0
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    raise SystemExit(main())
