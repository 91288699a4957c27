package meter

import "encoding/binary"

// The instructions that the meter adds or changes, or whose immediates it must know.
const (
	opBlock        = 0x02
	opLoop         = 0x03
	opIf           = 0x04
	opElse         = 0x05
	opEnd          = 0x0b
	opBr           = 0x0c
	opBrIf         = 0x0d
	opBrTable      = 0x0e
	opReturn       = 0x0f
	opCall         = 0x10
	opCallIndirect = 0x11
	opDrop         = 0x1a
	opSelect       = 0x1b
	opSelectTyped  = 0x1c
	opLocalGet     = 0x20
	opLocalSet     = 0x21
	opGlobalGet    = 0x23
	opGlobalSet    = 0x24
	opTableSet     = 0x26
	opLoadFirst    = 0x28
	opStoreLast    = 0x3e
	opMemorySize   = 0x3f
	opMemoryGrow   = 0x40
	opI32Const     = 0x41
	opI64Const     = 0x42
	opF32Const     = 0x43
	opF64Const     = 0x44
	opI64LtS       = 0x53
	opI64Sub       = 0x7d
	opI64ShrU      = 0x88
	opI64ExtendU   = 0xad
	opNumericLast  = 0xc4
	opRefNull      = 0xd0
	opRefIsNull    = 0xd1
	opRefFunc      = 0xd2
	opMisc         = 0xfc
	opVector       = 0xfd

	blockEmpty = 0x40
	typeI32    = 0x7f
)

// The instructions behind opMisc.
const (
	miscMemoryInit = 8 + iota
	miscDataDrop
	miscMemoryCopy
	miscMemoryFill
	miscTableInit
	miscElemDrop
	miscTableCopy
	miscTableGrow
	miscTableSize
	miscTableFill
)

// constant copies a constant expression.
func (m *metered) constant(out []byte, r *reader) []byte {
	c := body{m: m, r: r, out: out}
	for m.in.err == nil {
		if c.instruction() == opEnd {
			break
		}
	}
	return c.out
}

// code copies the bodies of the functions, with their metering.
func (m *metered) code() []byte {
	r, n := m.section(sectionCode)
	if m.in.err == nil && n != len(m.functions) {
		r.failAt(r.at, "expected the code of %d functions, found that of %d", len(m.functions), n)
	}
	if m.in.err != nil || n == 0 {
		return m.copied(sectionCode)
	}
	out := binary.AppendUvarint(make([]byte, 0, len(r.data)), uint64(n))
	var b body
	for i := range n {
		size := int(r.u32())
		part := span{r.at, r.at + size}
		r.skip(size)
		b = body{m: m, r: m.in.of(part), out: b.out[:0], loops: b.loops[:0], blocks: b.blocks[:0]}
		out = b.function(out, m.params[m.functions[i]])
		if m.in.err != nil {
			return nil
		}
	}
	return out
}

// body copies instructions.
type body struct {
	m   *metered
	r   *reader
	out []byte

	temp   int    // the index of the local that bulk instructions use
	bulk   bool   // there is a bulk instruction
	costs  bool   // there is a call or a loop
	own    int64  // the instructions outside of loops
	loops  []loop // the loops that are open
	blocks []bool // the blocks that are open; true for a loop

	scratch [40]byte
}

// loop is a loop whose cost is not known yet.
type loop struct {
	cost         int   // where the cost must be written
	instructions int64 // so far
}

// maxLocals is the most locals of a function that the format allows.
const maxLocals = 1<<32 - 2

// function copies a function whose parameters are the first locals, and appends it to out with its size.
func (b *body) function(out []byte, params int) []byte {
	groups := b.r.count()
	declared, locals := b.r.at, int64(params)
	for range groups {
		locals += int64(b.r.u32())
		b.r.byte()
	}
	if locals > maxLocals {
		b.r.failAt(declared, "expected at most %d locals, found %d", int64(maxLocals), locals)
	}
	body := b.r.at
	b.temp = int(locals)
	b.metered()
	if b.m.in.err != nil {
		return nil
	}
	if b.bulk {
		groups++
	}
	head := binary.AppendUvarint(nil, uint64(groups))
	head = append(head, b.r.data[declared:body]...)
	if b.bulk {
		head = append(head, 1, typeI32)
	}
	if b.costs {
		head = b.charge(head, b.own)
	}
	out = binary.AppendUvarint(out, uint64(len(head)+len(b.out)))
	return append(append(out, head...), b.out...)
}

// metered copies instructions to the end of the function, which must be that of its bytes, and adds those of the meter.
func (b *body) metered() {
	for b.r.more() {
		op := b.instruction()
		b.count()
		switch op {
		case opBlock, opIf:
			b.blocks = append(b.blocks, false)
		case opLoop:
			b.costs = true
			b.blocks = append(b.blocks, true)
			b.out = b.charge(b.out, 0)
			b.loops = append(b.loops, loop{cost: len(b.out) - b.chargeTail() - paddedSize})
		case opCall, opCallIndirect:
			b.costs = true
		case opEnd:
			if len(b.blocks) == 0 {
				if b.r.at != b.r.end {
					b.r.failAt(b.r.at, "expected the end of the function's bytes behind its last instruction")
				}
				return
			}
			b.close()
		}
	}
	b.r.failAt(b.r.end, "expected an instruction, found the end of the function's bytes")
}

// count adds an instruction to the innermost loop, or to the function.
func (b *body) count() {
	if n := len(b.loops); n > 0 {
		b.loops[n-1].instructions++
	} else {
		b.own++
	}
}

// close closes a block. The cost of a loop is known then.
func (b *body) close() {
	last := len(b.blocks) - 1
	if b.blocks[last] {
		l := b.loops[len(b.loops)-1]
		b.loops = b.loops[:len(b.loops)-1]
		putPadded(b.out[l.cost:], l.instructions)
	}
	b.blocks = b.blocks[:last]
}

// paddedSize is the size of a cost.
const paddedSize = 5

// putPadded writes a number below 2^34 in LEB128, with all of the bytes.
func putPadded(to []byte, n int64) {
	for i := range paddedSize - 1 {
		to[i] = byte(n>>(7*i))&0x7f | 0x80
	}
	to[paddedSize-1] = byte(n>>(7*(paddedSize-1))) & 0x3f
}

// chargeTail returns the number of bytes of a charge behind its cost.
func (b *body) chargeTail() int {
	const sub = 1
	return sub + len(b.settle(b.scratch[:0]))
}

// charge appends the instructions that subtract a cost from the fuel.
func (b *body) charge(out []byte, cost int64) []byte {
	out = b.index(append(out, opGlobalGet), b.m.globals)
	out = append(out, opI64Const, 0, 0, 0, 0, 0)
	putPadded(out[len(out)-paddedSize:], cost)
	return b.settle(append(out, opI64Sub))
}

// settle appends the instructions that make the top of the stack the fuel, and ask the host for more when it is negative.
func (b *body) settle(out []byte) []byte {
	out = b.index(append(out, opGlobalSet), b.m.globals)
	out = b.index(append(out, opGlobalGet), b.m.globals)
	out = append(out, opI64Const, 0, opI64LtS, opIf, blockEmpty)
	out = b.index(append(out, opCall), b.m.imported)
	out = b.index(append(out, opGlobalSet), b.m.globals)
	return append(out, opEnd)
}

// chargeBulk appends the instructions that charge for the number of bytes or elements at the top of the stack, and leave it there.
func (b *body) chargeBulk() {
	const perUnit = 3 // a unit of fuel for eight bytes
	b.bulk = true
	b.out = b.index(append(b.out, opLocalSet), b.temp)
	b.out = b.index(append(b.out, opGlobalGet), b.m.globals)
	b.out = b.index(append(b.out, opLocalGet), b.temp)
	b.out = b.settle(append(b.out, opI64ExtendU, opI64Const, perUnit, opI64ShrU, opI64Sub))
	b.out = b.index(append(b.out, opLocalGet), b.temp)
}

func (*body) index(out []byte, i int) []byte { return binary.AppendUvarint(out, uint64(i)) }

// instruction copies one instruction and returns its opcode. Indexes of functions are shifted behind the meter's.
func (b *body) instruction() byte {
	at := b.r.at
	op := b.r.byte()
	switch op {
	case opMisc:
		b.misc(at)
		return op
	case opCall, opRefFunc:
		b.out = b.index(append(b.out, op), b.m.shifted(int(b.r.u32())))
		return op
	case opGlobalGet, opGlobalSet:
		if k := int(b.r.u32()); k >= b.m.globals {
			b.r.failAt(at, "expected one of %d globals, found global %d", b.m.globals, k)
		}
	case opVector:
		b.vector(at)
	default:
		b.immediates(at, op)
	}
	if b.m.in.err == nil {
		b.out = append(b.out, b.r.data[at:b.r.at]...)
	}
	return op
}

// immediates skips what follows an opcode.
func (b *body) immediates(at int, op byte) {
	switch {
	case op == opBlock, op == opLoop, op == opIf, op == opI32Const, op == opI64Const:
		b.r.leb()
	case op == opBr, op == opBrIf, op >= opLocalGet && op <= opTableSet, op == opRefNull, op == opMemorySize, op == opMemoryGrow:
		b.r.u32()
	case op == opBrTable:
		for range b.r.count() {
			b.r.u32()
		}
		b.r.u32()
	case op == opCallIndirect, op >= opLoadFirst && op <= opStoreLast:
		b.r.u32()
		b.r.u32()
	case op == opSelectTyped:
		b.r.skip(b.r.count())
	case op == opF32Const:
		b.r.skip(4)
	case op == opF64Const:
		b.r.skip(8)
	case op <= 0x01, op == opElse, op == opEnd, op == opReturn, op == opDrop, op == opSelect, op > opF64Const && op <= opNumericLast, op == opRefIsNull:
	default:
		b.r.failAt(at, "instruction %#x is not supported, expected one of WebAssembly 2.0", op)
	}
}

// misc copies an instruction of the group of bulk and of saturating ones.
func (b *body) misc(at int) {
	indexes := 0
	switch op := b.r.u32(); op {
	case miscTableGrow:
		b.r.failAt(at, "table.grow is not supported: a table that grows has no limit")
	case miscMemoryInit, miscMemoryCopy, miscTableInit, miscTableCopy:
		b.chargeBulk()
		indexes = 2
	case miscMemoryFill, miscTableFill:
		b.chargeBulk()
		indexes = 1
	case miscDataDrop, miscElemDrop, miscTableSize:
		indexes = 1
	default:
		if op > miscTableFill {
			b.r.failAt(at, "instruction %#x %d is not supported, expected one of WebAssembly 2.0", opMisc, op)
		}
	}
	for range indexes {
		b.r.u32()
	}
	if b.m.in.err == nil {
		b.out = append(b.out, b.r.data[at:b.r.at]...)
	}
}

// vector skips what follows opVector.
func (b *body) vector(at int) {
	const (
		storeLast            = 11 // of the loads and stores of whole vectors
		constant, shuffle    = 12, 13
		laneFirst, laneLast  = 21, 34 // lanes are read and replaced
		memoryLaneFirst      = 84     // lanes are loaded and stored
		memoryLaneLast       = 91
		zeroLast             = 93 // the rest of the vector becomes zero
		last                 = 255
		vectorSize, laneSize = 16, 1
	)
	op := b.r.u32()
	switch {
	case op == constant, op == shuffle:
		b.r.skip(vectorSize)
	case op >= laneFirst && op <= laneLast:
		b.r.skip(laneSize)
	case op <= storeLast, op >= memoryLaneFirst && op <= zeroLast:
		b.r.u32()
		b.r.u32()
		if op >= memoryLaneFirst && op <= memoryLaneLast {
			b.r.skip(laneSize)
		}
	case op > last:
		b.r.failAt(at, "instruction %#x %d is not supported, expected one of WebAssembly 2.0", opVector, op)
	}
}
