package tritonlib

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/backends/dylib"
)

// soname is the library that libraries of backends are linked with.
const soname = "libtritonserver.so"

// symbol is a function of this process by the name that libraries know.
type symbol struct {
	name    string
	address uint64
}

// provide loads a shared library with the given symbols. Libraries that are loaded later find them there, whether they are linked with
// libtritonserver.so or with nothing.
func provide(list []symbol) error {
	fd, err := unix.MemfdCreate(soname, unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("cannot make %s: %w", soname, err)
	}
	f := os.NewFile(uintptr(fd), soname)
	_, err = f.Write(sharedLibrary(list))
	if err == nil {
		_, err = dylib.Open("/proc/self/fd/"+strconv.Itoa(fd), true)
	}
	return errors.Join(err, f.Close())
}

// Sizes of the structures of a 64-bit ELF file: the header, a program header, a symbol and an entry of the dynamic section.
const (
	sizeHeader  = 64
	sizeProgram = 56
	sizeSymbol  = 24
	sizeDynamic = 16
	pageSize    = 1 << 16
)

// sharedLibrary returns a shared library without code: a name, and symbols with absolute addresses, which the loader takes as they are (glibc 2.28
// and later, musl). The format is that of the System V ABI, "Object Files".
func sharedLibrary(list []symbol) []byte {
	strings := []byte{0}
	text := func(s string) (at uint32) {
		at = uint32(len(strings)) //nolint:gosec // a few kilobytes
		strings = append(append(strings, s...), 0)
		return at
	}
	le := binary.LittleEndian
	var symbols []byte
	symbols = append(symbols, make([]byte, sizeSymbol)...) // the first one is undefined
	for _, s := range list {
		symbols = le.AppendUint32(symbols, text(s.name))
		symbols = append(symbols, elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC), byte(elf.STV_DEFAULT))
		symbols = le.AppendUint16(symbols, uint16(elf.SHN_ABS))
		symbols = le.AppendUint64(symbols, s.address)
		symbols = le.AppendUint64(symbols, 0)
	}
	name := text(soname)
	hash := hashTable(list)

	const programs, entries = 3, 6
	atDynamic := uint64(sizeHeader + programs*sizeProgram)
	atSymbols := atDynamic + (entries+1)*sizeDynamic
	atHash := atSymbols + uint64(len(symbols))
	atStrings := atHash + uint64(len(hash))
	end := atStrings + uint64(len(strings))

	var out bytes.Buffer
	put := func(v any) { _ = binary.Write(&out, le, v) } // a buffer takes everything
	header := elf.Header64{
		Type: uint16(elf.ET_DYN), Machine: uint16(machines[runtime.GOARCH]), Version: uint32(elf.EV_CURRENT), Phoff: sizeHeader,
		Ehsize: sizeHeader, Phentsize: sizeProgram, Phnum: programs,
	}
	copy(header.Ident[:], elf.ELFMAG)
	header.Ident[elf.EI_CLASS], header.Ident[elf.EI_DATA], header.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
	put(&header)
	segment := func(kind elf.ProgType, at, size, align uint64) {
		put(&elf.Prog64{Type: uint32(kind), Flags: uint32(elf.PF_R | elf.PF_W), Off: at, Vaddr: at, Paddr: at, Filesz: size, Memsz: size, Align: align})
	}
	segment(elf.PT_LOAD, 0, end, pageSize) // writable: loaders relocate the dynamic section
	segment(elf.PT_DYNAMIC, atDynamic, (entries+1)*sizeDynamic, 8)
	segment(elf.PT_GNU_STACK, 0, 0, 16)
	dynamic := func(tag elf.DynTag, v uint64) { put(&elf.Dyn64{Tag: int64(tag), Val: v}) }
	dynamic(elf.DT_SONAME, uint64(name))
	dynamic(elf.DT_HASH, atHash)
	dynamic(elf.DT_STRTAB, atStrings)
	dynamic(elf.DT_STRSZ, uint64(len(strings)))
	dynamic(elf.DT_SYMTAB, atSymbols)
	dynamic(elf.DT_SYMENT, sizeSymbol)
	dynamic(elf.DT_NULL, 0)
	out.Write(symbols)
	out.Write(hash)
	out.Write(strings)
	return out.Bytes()
}

// hashTable returns the hash table of the symbols, with a bucket for each. Its length is a multiple of 4.
func hashTable(list []symbol) []byte {
	n := uint32(len(list)) //nolint:gosec // a few hundred
	buckets, chain := make([]uint32, n), make([]uint32, n+1)
	for i, s := range list {
		b := hashOf(s.name) % n
		chain[i+1], buckets[b] = buckets[b], uint32(i+1) //nolint:gosec // below n
	}
	var out []byte
	for _, v := range append(append([]uint32{n, n + 1}, buckets...), chain...) {
		out = binary.LittleEndian.AppendUint32(out, v)
	}
	return out
}

// hashOf is the hash function of the System V ABI.
func hashOf(name string) (h uint32) {
	for i := range len(name) {
		h = h<<4 + uint32(name[i])
		g := h & 0xf0000000
		h = (h ^ g>>24) &^ g
	}
	return h
}
