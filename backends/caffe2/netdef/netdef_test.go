package netdef_test

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tutti-server/tutti/backends/caffe2/netdef"
)

// wrapped returns a net with one operator with one argument, which has the given fields.
func wrapped(fields []byte) []byte {
	nest := func(n protowire.Number, b []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), b)
	}
	return nest(2, nest(5, fields))
}

// TestNumbers checks repeated numbers that are packed, that are not, and both.
func TestNumbers(t *testing.T) {
	t.Parallel()
	var fields []byte
	var want []float32
	add := func(x float32) {
		want = append(want, x)
		fields = protowire.AppendFixed32(protowire.AppendTag(fields, 5, protowire.Fixed32Type), math.Float32bits(x))
	}
	for i := range 10 {
		add(float32(i) / 3)
	}
	fields = protowire.AppendBytes(protowire.AppendTag(fields, 5, protowire.BytesType),
		binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, math.Float32bits(-1)), math.Float32bits(7)))
	want = append(want, -1, 7)
	ints := []int64{1, -1, math.MaxInt64, 0}
	for _, x := range ints {
		fields = protowire.AppendVarint(protowire.AppendTag(fields, 6, protowire.VarintType), uint64(x))
	}
	fields = protowire.AppendBytes(protowire.AppendTag(fields, 6, protowire.BytesType), protowire.AppendVarint(protowire.AppendVarint(nil, 300), 2))
	ints = append(ints, 300, 2)
	add(0.5)

	n, err := netdef.Parse(wrapped(fields))
	if err != nil {
		t.Fatal(err)
	}
	a := &n.Operators[0].Args[0]
	if got := slices.Collect(a.Floats.All()); !slices.Equal(got, want) || a.Floats.Len() != len(want) {
		t.Errorf("floats = %v, want %v", got, want)
	}
	if got := slices.Collect(a.Ints.All()); !slices.Equal(got, ints) || a.Ints.Len() != len(ints) {
		t.Errorf("ints = %v, want %v", got, ints)
	}
	var raw []byte
	a.Floats.Raw(make([]byte, 13), func(b []byte) bool {
		raw = append(raw, b...)
		return true
	})
	for i, x := range want {
		if len(raw) != 4*len(want) || math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])) != x {
			t.Fatalf("raw = % x, want %v", raw, want)
		}
	}
	pieces := 0
	a.Floats.Raw(make([]byte, 4), func([]byte) bool { pieces++; return pieces < 3 })
	if pieces != 3 {
		t.Errorf("%d pieces after the end", pieces)
	}
}

func TestDamaged(t *testing.T) {
	t.Parallel()
	good := wrapped(protowire.AppendFixed32(protowire.AppendTag(nil, 5, protowire.Fixed32Type), 1))
	for n := 1; n < len(good); n++ {
		if _, err := netdef.Parse(good[:n]); !errors.Is(err, netdef.ErrTruncated) {
			t.Errorf("%d of %d bytes: %v, want ErrTruncated", n, len(good), err)
		}
	}
	for name, data := range map[string][]byte{
		"three bytes of floats": wrapped([]byte{5<<3 | 2, 3, 0, 0, 0}),
		"endless integer":       wrapped([]byte{6<<3 | 2, 1, 0x80}),
		"text":                  []byte("name: \"net\""),
		"name":                  {1<<3 | 2, 1, 0xff},
	} {
		if n, err := netdef.Parse(data); err == nil {
			t.Errorf("%s: %+v, want an error", name, n)
		}
	}
}
