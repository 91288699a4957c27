// Package wasmtest assembles WebAssembly modules for tests of the backend wasm: modules that break every rule of the interface.
//
// The bodies of functions are instructions of the binary format, for which the package has names, without the last end:
//
//	m := wasmtest.Module{Execute: wasmtest.Join(wasmtest.I32(7), []byte{wasmtest.Drop}, wasmtest.I32(1024))}
//	os.WriteFile("model.wasm", m.Bytes(), 0o600)
package wasmtest

import (
	"encoding/binary"
	"slices"
)

// Instructions.
const (
	Unreachable = 0x00
	Block       = 0x02
	Loop        = 0x03
	If          = 0x04
	Else        = 0x05
	End         = 0x0b
	Br          = 0x0c
	BrIf        = 0x0d
	Return      = 0x0f
	Call        = 0x10
	Drop        = 0x1a
	LocalGet    = 0x20
	LocalSet    = 0x21
	GlobalGet   = 0x23
	GlobalSet   = 0x24
	I32Load     = 0x28
	I32Store    = 0x36
	MemorySize  = 0x3f
	MemoryGrow  = 0x40
	I32Eqz      = 0x45
	I32Eq       = 0x46
	I32Add      = 0x6a
	I32Sub      = 0x6b
	I32DivS     = 0x6d
	Misc        = 0xfc
	Empty       = 0x40 // the type of a block without results
)

// The addresses of the default functions.
const (
	BufferAt   = 1 << 17 // of tutti_buffer, which reserves the pages behind it
	ResponseAt = 1 << 10 // of the response that tutti_execute returns
)

// The indexes of the functions of a module without imports. Imports come first.
const (
	VersionFunction = iota
	BufferFunction
	ExecuteFunction
	InitializeFunction
)

// I32 returns the instruction i32.const.
func I32(n int32) []byte { return appendSigned([]byte{0x41}, int64(n)) }

// Join concatenates instructions.
func Join(parts ...[]byte) []byte { return slices.Concat(parts...) }

// Op returns an instruction with indexes.
func Op(op byte, indexes ...uint32) []byte {
	out := []byte{op}
	for _, i := range indexes {
		out = binary.AppendUvarint(out, uint64(i))
	}
	return out
}

// Import is an imported function with parameters and results of type i32.
type Import struct {
	Module, Name    string
	Params, Results int
}

// Data are bytes in the memory of the module.
type Data struct {
	At    uint32
	Bytes []byte
}

// Module is a module that implements the interface. The zero value has 16 pages of memory, and buffers and responses at the
// addresses above: the response is empty unless Data has one.
type Module struct {
	Imports []Import
	// Pages is the memory at the start, MaxPages the most that it declares; 0 for the defaults: 16 and none.
	Pages, MaxPages uint32
	// Version, Buffer and Execute are the bodies of the functions; nil for the defaults. Initialize is optional.
	Version, Buffer, Execute, Initialize []byte
	// Globals is the number of mutable globals of type i32, which begin as 0. Each function has two locals of type i32 besides
	// its parameters.
	Globals int
	// Table is the least size of a table of functions; 0 for no table.
	Table int
	Data  []Data
	// Start is the body of a function that runs at the start; nil for none.
	Start []byte
	// Without lists exports to leave out, and Custom has sections to append.
	Without []string
	Custom  []byte
}

func appendSigned(out []byte, n int64) []byte {
	for {
		b := byte(n & 0x7f)
		n >>= 7
		if n == 0 && b&0x40 == 0 || n == -1 && b&0x40 != 0 {
			return append(out, b)
		}
		out = append(out, b|0x80)
	}
}

func name(s string) []byte { return append(binary.AppendUvarint(nil, uint64(len(s))), s...) }

func section(id byte, items ...[]byte) []byte {
	content := binary.AppendUvarint(nil, uint64(len(items)))
	content = append(content, slices.Concat(items...)...)
	return append(binary.AppendUvarint([]byte{id}, uint64(len(content))), content...)
}

// signature returns a function type of parameters and results of type i32.
func signature(params, results int) []byte {
	out := append([]byte{0x60, byte(params)}, slices.Repeat([]byte{0x7f}, params)...)
	return append(append(out, byte(results)), slices.Repeat([]byte{0x7f}, results)...)
}

func body(code []byte) []byte {
	code = slices.Concat([]byte{1, 2, 0x7f}, code, []byte{End})
	return append(binary.AppendUvarint(nil, uint64(len(code))), code...)
}

func orDefault(code, otherwise []byte) []byte {
	if code == nil {
		return otherwise
	}
	return code
}

// Bytes returns the module.
func (m *Module) Bytes() []byte {
	types := [][]byte{signature(0, 1), signature(1, 1), signature(2, 1), signature(2, 1), signature(0, 0)}
	bodies := [][]byte{
		body(orDefault(m.Version, I32(1))), body(orDefault(m.Buffer, I32(BufferAt))), body(orDefault(m.Execute, I32(ResponseAt))),
	}
	functions := [][]byte{{0}, {1}, {2}}
	names := []string{"tutti_abi_version", "tutti_buffer", "tutti_execute"}
	if m.Initialize != nil {
		bodies, functions, names = append(bodies, body(m.Initialize)), append(functions, []byte{3}), append(names, "tutti_initialize")
	}
	start := len(m.Imports) + len(bodies)
	if m.Start != nil {
		bodies, functions = append(bodies, body(m.Start)), append(functions, []byte{4})
	}
	out := []byte("\x00asm\x01\x00\x00\x00")
	var imports, exports, globals, data [][]byte
	for i, im := range m.Imports {
		types = append(types, signature(im.Params, im.Results))
		imports = append(imports, slices.Concat(name(im.Module), name(im.Name), []byte{0, byte(5 + i)}))
	}
	for i, n := range names {
		if !slices.Contains(m.Without, n) {
			exports = append(exports, append(name(n), Op(0, uint32(len(m.Imports)+i))...))
		}
	}
	if !slices.Contains(m.Without, "memory") {
		exports = append(exports, append(name("memory"), 2, 0))
	}
	for range m.Globals {
		globals = append(globals, []byte{0x7f, 1, 0x41, 0, End})
	}
	for _, d := range m.Data {
		data = append(data, slices.Concat([]byte{0}, I32(int32(d.At)), []byte{End}, binary.AppendUvarint(nil, uint64(len(d.Bytes))), d.Bytes))
	}
	pages := m.Pages
	if pages == 0 {
		pages = 16
	}
	memory := Op(0, pages)
	if m.MaxPages > 0 {
		memory = Op(1, pages, m.MaxPages)
	}
	out = append(append(out, section(1, types...)...), section(2, imports...)...)
	out = append(out, section(3, functions...)...)
	if m.Table > 0 {
		out = append(out, section(4, append([]byte{0x70}, Op(0, uint32(m.Table))...))...)
	}
	out = append(append(append(out, section(5, memory)...), section(6, globals...)...), section(7, exports...)...)
	if m.Start != nil {
		index := binary.AppendUvarint(nil, uint64(start))
		out = append(append(out, 8, byte(len(index))), index...)
	}
	out = append(append(out, section(10, bodies...)...), section(11, data...)...)
	return append(out, m.Custom...)
}

// Tensor is an output as a module describes it. Zero values of the addresses are replaced by where Response puts the parts.
type Tensor struct {
	Name string
	Type uint32
	Dims []int64
	Data []byte
}

// Failure is a failure as a module describes it.
type Failure struct {
	Row  int32
	Code uint32
	Text string
}

// Response returns the bytes of a response that begins at an address: its head, its structures and what they refer to.
func Response(at uint32, outputs []Tensor, failures []Failure) []byte {
	order := binary.LittleEndian
	heads := at + 16
	parts := heads + uint32(32*len(outputs)+16*len(failures))
	var head, tail []byte
	put := func(b []byte) (addr, n uint32) {
		addr = parts + uint32(len(tail))
		tail = append(tail, b...)
		return addr, uint32(len(b))
	}
	words := func(list ...uint32) {
		for _, v := range list {
			head = order.AppendUint32(head, v)
		}
	}
	words(heads, uint32(len(outputs)), heads+uint32(32*len(outputs)), uint32(len(failures)))
	for _, o := range outputs {
		name, nameLen := put([]byte(o.Name))
		var dims []byte
		for _, d := range o.Dims {
			dims = order.AppendUint64(dims, uint64(d))
		}
		dimsAt, _ := put(dims)
		data, dataLen := put(o.Data)
		words(name, nameLen, o.Type, uint32(len(o.Dims)), dimsAt, data, dataLen, 0)
	}
	for _, f := range failures {
		text, textLen := put([]byte(f.Text))
		words(uint32(f.Row), f.Code, text, textLen)
	}
	return append(head, tail...)
}
