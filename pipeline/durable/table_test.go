package durable

import (
	"crypto/sha256"
	"encoding/binary"
	"os"
	"testing"
)

func keyOf(i int) rowKey {
	sum := sha256.Sum256(binary.LittleEndian.AppendUint64(nil, uint64(i)))
	return rowKey(sum[:16])
}

// TestTable finds every row that was added, the first of two with the same key, and none else.
func TestTable(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 300, 50_000} {
		dir := t.TempDir()
		b, err := newTableBuilder(dir)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if err = b.add(keyOf(i), found{part: uint32(i / 100), row: uint32(i % 100)}); err != nil {
				t.Fatal(err)
			}
		}
		if err = b.add(keyOf(0), found{part: 7777}); err != nil {
			t.Fatal(err)
		}
		table, err := b.build()
		if err != nil {
			t.Fatal(err)
		}
		var buf []byte
		for i := range n {
			var f found
			var ok bool
			f, ok, buf, err = table.find(keyOf(i), buf)
			if want := (found{part: uint32(i / 100), row: uint32(i % 100)}); err != nil || !ok || f != want {
				t.Fatalf("row %d of %d: %v %v %v, want %v", i, n, f, ok, err, want)
			}
		}
		for i := n; i < n+1000; i++ {
			if _, ok, _, err := table.find(keyOf(i), nil); ok || err != nil {
				t.Fatalf("row %d of %d was never added: %v %v", i, n, ok, err)
			}
		}
		if left, _ := os.ReadDir(dir); len(left) != 0 {
			t.Errorf("%d files are left", len(left))
		}
		if per := len(table.starts) * 8; n > 1000 && per > n {
			t.Errorf("%d bytes of memory for %d rows", per, n)
		}
		table.close()
	}
}

func TestTableWithoutRows(t *testing.T) {
	t.Parallel()
	b, err := newTableBuilder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if table, err := b.build(); table != nil || err != nil {
		t.Errorf("%v %v, want none", table, err)
	}
}
