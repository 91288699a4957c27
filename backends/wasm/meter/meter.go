// Package meter adds a fuel meter to WebAssembly modules. A metered module counts the instructions that it executes and calls the
// host when its fuel is used up, so that the host can end an execution that takes too long, at a cost of about a nanosecond for
// each iteration of a loop.
//
// The meter is a mutable global of type i64, exported as Global, and an import, the function Function of the module Module, which
// takes nothing and returns the next fuel. At the start of a function and of each iteration of a loop, the module subtracts a
// number of instructions from the global, and calls the function when the result is negative:
//
//   - an iteration of a loop costs the instructions of the loop's body, without those of loops inside it;
//   - a call costs the instructions of the function outside of its loops. A function that has neither loops nor calls is free:
//     its time is bounded by its size;
//   - an instruction that works on n bytes or elements (memory.fill, memory.copy, table.init and the like) costs n/8 more.
//
// The costs depend on the module and its inputs only, not on the machine: the same execution always uses the same fuel. Branches
// that are not taken count too.
//
//	meter.go    the sections of a module
//	code.go     the instructions of functions and of constant expressions
//	elements.go element segments
//	reader.go   the binary format
//
// The format is that of the WebAssembly Core Specification 2.0, chapter 5. The package does not validate modules: a runtime must
// validate the result. It refuses what would give a module access to its meter, and table.grow, because a table that grows has
// no limit.
package meter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// The names of the meter in a metered module.
const (
	Global   = "tutti_fuel"
	Module   = "tutti"
	Function = "refuel"
)

// maxTable is the most elements with which a table may begin.
const maxTable = 1 << 20

// maxModule is the largest module in bytes.
const maxModule = 1 << 30

// The sections of a module by their numbers.
const (
	sectionCustom = iota
	sectionType
	sectionImport
	sectionFunction
	sectionTable
	sectionMemory
	sectionGlobal
	sectionExport
	sectionStart
	sectionElement
	sectionCode
	sectionData
	sectionDataCount
	sections
)

// order lists the sections as they follow each other in a module.
var order = [...]int{
	sectionType, sectionImport, sectionFunction, sectionTable, sectionMemory, sectionGlobal, sectionExport, sectionStart,
	sectionElement, sectionDataCount, sectionCode, sectionData,
}

// The kinds of imports and exports.
const (
	kindFunction = iota
	kindTable
	kindMemory
	kindGlobal
)

// The types that the meter uses.
const (
	typeFunction = 0x60
	typeI64      = 0x7e
)

// preamble is the magic number of the format and its version.
const preamble = "\x00asm\x01\x00\x00\x00"

// Add returns a module with a meter. The custom sections of the module are dropped, apart from the names of functions. An error
// says what was expected, what was found, and at which byte of the module.
func Add(module []byte) ([]byte, error) {
	switch {
	case len(module) > maxModule:
		return nil, fmt.Errorf("the module has %d bytes, expected at most %d", len(module), maxModule)
	case len(module) < len(preamble) || string(module[:4]) != preamble[:4]:
		return nil, errors.New("expected a WebAssembly module, which begins with the bytes 0, 'asm'")
	case binary.LittleEndian.Uint16(module[6:]) == 1:
		return nil, errors.New("expected a core module, found a component: compile for wasm32-wasip1 or wasm32-unknown-unknown")
	case string(module[:len(preamble)]) != preamble:
		return nil, fmt.Errorf("expected version 1 of the binary format, found % x", module[4:len(preamble)])
	}
	m := &metered{in: reader{data: module, at: len(preamble), end: len(module)}}
	if m.split(); m.in.err != nil {
		return nil, m.in.err
	}
	out := m.rewrite()
	if m.in.err != nil {
		return nil, m.in.err
	}
	return out, nil
}

// metered is a module while it gets its meter. The first error is kept in in.err; what is read after it is zero.
type metered struct {
	in       reader
	sections [sections]span
	names    span // the section with names, if any

	params    []int // the number of parameters by type
	functions []int // the types of the functions of the module
	imported  int   // the number of imported functions, and the index of the meter's function
	globals   int   // the number of globals, and the index of the meter's
}

// span is a part of the module: from byte at to byte end. A section that a module lacks has no bytes.
type span struct{ at, end int }

// split finds the sections.
func (m *metered) split() {
	next := 0
	for m.in.more() {
		at := m.in.at
		id := int(m.in.byte())
		size := int(m.in.u32())
		s := span{m.in.at, m.in.at + size}
		m.in.skip(size)
		if id == sectionCustom {
			r := m.in.of(s)
			if string(r.name()) == "name" {
				m.names = span{r.at, s.end}
			}
			continue
		}
		k := slices.Index(order[:], id)
		if k < next {
			m.in.failAt(at, "expected the sections of a module in their order, each at most once, found section %d", id)
			return
		}
		m.sections[id], next = s, k+1
	}
}

// section returns a reader of a section and the number of its items. A section that is missing has none.
func (m *metered) section(id int) (*reader, int) {
	r := m.in.of(m.sections[id])
	if r.at == r.end {
		return r, 0
	}
	return r, r.count()
}

// rewrite returns the module with its meter.
func (m *metered) rewrite() []byte {
	var parts [sections][]byte
	parts[sectionType] = m.types()
	parts[sectionImport] = m.imports()
	parts[sectionFunction] = m.functionTypes()
	parts[sectionTable] = m.tables()
	parts[sectionMemory] = m.copied(sectionMemory)
	parts[sectionGlobal] = m.globalVariables()
	parts[sectionExport] = m.exports()
	parts[sectionStart] = m.start()
	parts[sectionElement] = m.elements()
	parts[sectionDataCount] = m.copied(sectionDataCount)
	parts[sectionCode] = m.code()
	parts[sectionData] = m.copied(sectionData)
	out := append(make([]byte, 0, len(m.in.data)*5/4), preamble...)
	for _, id := range order {
		if len(parts[id]) > 0 {
			out = appendSection(out, id, parts[id])
		}
	}
	if names := m.functionNames(); names != nil && m.in.err == nil {
		out = appendSection(out, sectionCustom, names)
	}
	return out
}

func appendSection(out []byte, id int, content []byte) []byte {
	out = append(out, byte(id))
	out = binary.AppendUvarint(out, uint64(len(content)))
	return append(out, content...)
}

// copied returns a section as it is.
func (m *metered) copied(id int) []byte {
	s := m.sections[id]
	return m.in.data[s.at:s.end]
}

// extended returns a section with one more item. r is behind its number of items.
func extended(r *reader, count int, item ...byte) []byte {
	out := binary.AppendUvarint(nil, uint64(count)+1)
	out = append(out, r.data[r.at:r.end]...)
	return append(out, item...)
}

// types reads the parameters of each type, and adds that of the meter's function.
func (m *metered) types() []byte {
	r, n := m.section(sectionType)
	out := extended(r, n, typeFunction, 0, 1, typeI64)
	for range n {
		at := r.at
		if form := r.byte(); form != typeFunction && m.in.err == nil {
			r.failAt(at, "expected a function type, found a type of form %#x, which is not supported", form)
		}
		params := r.count()
		r.skip(params) // a byte for each
		r.skip(r.count())
		if m.in.err != nil {
			return nil
		}
		m.params = append(m.params, params)
	}
	return out
}

// imports counts the imports, and adds the meter's function.
func (m *metered) imports() []byte {
	r, n := m.section(sectionImport)
	item := appendName(appendName(nil, Module), Function)
	item = binary.AppendUvarint(append(item, kindFunction), uint64(len(m.params)))
	out := extended(r, n, item...)
	for range n {
		r.name()
		r.name()
		at := r.at
		switch kind := r.byte(); kind {
		case kindFunction:
			r.u32()
			m.imported++
		case kindTable:
			r.byte()
			m.limits(r)
		case kindMemory:
			m.limits(r)
		case kindGlobal:
			r.skip(2)
			m.globals++
		default:
			r.failAt(at, "expected an import of kind 0 to 3, found kind %d", kind)
		}
		if m.in.err != nil {
			return nil
		}
	}
	return out
}

func appendName(out []byte, name string) []byte {
	return append(binary.AppendUvarint(out, uint64(len(name))), name...)
}

// limits reads the limits of a table or a memory and returns the least size.
func (m *metered) limits(r *reader) (least int) {
	at := r.at
	flags := r.byte()
	least = int(r.u32())
	if flags&1 != 0 {
		r.u32()
	}
	if flags > 1 && m.in.err == nil {
		r.failAt(at, "expected a table or a memory with 32 bit addresses that is not shared, found one with flags %#x", flags)
	}
	return least
}

// functionTypes reads the type of each function.
func (m *metered) functionTypes() []byte {
	r, n := m.section(sectionFunction)
	for range n {
		at := r.at
		k := int(r.u32())
		if m.in.err == nil && k >= len(m.params) {
			r.failAt(at, "expected one of %d types, found type %d", len(m.params), k)
		}
		if m.in.err != nil {
			return nil
		}
		m.functions = append(m.functions, k)
	}
	return m.copied(sectionFunction)
}

// tables checks the sizes of the tables.
func (m *metered) tables() []byte {
	r, n := m.section(sectionTable)
	for range n {
		at := r.at
		r.byte()
		if least := m.limits(r); least > maxTable {
			r.failAt(at, "expected a table of at most %d elements, found %d", maxTable, least)
		}
		if m.in.err != nil {
			return nil
		}
	}
	return m.copied(sectionTable)
}

// globalVariables copies the globals, and adds the meter's. It begins with no fuel, so that its first use asks the host.
func (m *metered) globalVariables() []byte {
	r, n := m.section(sectionGlobal)
	m.globals += n
	out := binary.AppendUvarint(nil, uint64(n)+1)
	for range n {
		out = append(out, r.bytes(2)...) // type and mutability
		out = m.constant(out, r)
		if m.in.err != nil {
			return nil
		}
	}
	return append(out, typeI64, 1, opI64Const, 0, opEnd)
}

// exports copies the exports, and adds the meter's global.
func (m *metered) exports() []byte {
	r, n := m.section(sectionExport)
	out := binary.AppendUvarint(nil, uint64(n)+1)
	for range n {
		out = appendName(out, string(r.name()))
		kind := r.byte()
		index := int(r.u32())
		if kind == kindFunction {
			index = m.shifted(index)
		}
		out = binary.AppendUvarint(append(out, kind), uint64(index))
		if m.in.err != nil {
			return nil
		}
	}
	out = append(appendName(out, Global), kindGlobal)
	return binary.AppendUvarint(out, uint64(m.globals))
}

// start returns the section that names the function to start with.
func (m *metered) start() []byte {
	r := m.in.of(m.sections[sectionStart])
	if r.at == r.end {
		return nil
	}
	return binary.AppendUvarint(nil, uint64(m.shifted(int(r.u32()))))
}

// shifted returns the index of a function behind the meter's, which is the last import.
func (m *metered) shifted(index int) int {
	if index >= m.imported {
		return index + 1
	}
	return index
}

// functionNames returns the names of the module and of its functions as a custom section, for stack traces. It returns nil when
// the module has none that can be read: names are no reason to refuse a module.
func (m *metered) functionNames() []byte {
	const moduleName, functionNames = 0, 1
	if m.names.at == m.names.end {
		return nil
	}
	out := appendName(nil, "name")
	r := &reader{data: m.in.data, at: m.names.at, end: m.names.end}
	for r.more() {
		id, size := r.byte(), int(r.u32())
		body := *r
		r.skip(size)
		if r.err != nil {
			return nil
		}
		body.end = r.at
		switch id {
		case moduleName:
			out = appendSection(out, moduleName, body.data[body.at:body.end])
		case functionNames:
			n := body.count()
			list := binary.AppendUvarint(nil, uint64(n))
			for range n {
				list = binary.AppendUvarint(list, uint64(m.shifted(int(body.u32()))))
				list = appendName(list, string(body.name()))
			}
			if body.err != nil {
				return nil
			}
			out = appendSection(out, functionNames, list)
		}
	}
	return out
}
