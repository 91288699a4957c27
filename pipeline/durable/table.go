package durable

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/tutti-server/tutti/internal/dataset"
)

// rowKey identifies a row by its content.
type rowKey = dataset.Key

// found is the place of an earlier result of a row.
type found struct {
	part uint32 // its number in the list of earlier parts
	row  uint32 // among the rows of the part
}

// The records of a table: key, part, row.
const (
	recordSize   = 24
	shardCount   = 256
	shardBuffer  = 8 << 10
	bucketTarget = 64 // records
)

// table finds earlier results by the keys of rows. It is a file of records that are sorted by their keys, and the starts of
// buckets of about 64 records in memory: ten million rows take 240 MB on disk and 1.3 MB in memory. It is safe for
// concurrent use once it is built.
type table struct {
	file   *os.File
	starts []int64 // the first record of each bucket, and the number of records
	bits   int     // of a key that choose its bucket
}

// tableBuilder collects records in files by the first byte of their keys, so that each can be sorted in memory.
type tableBuilder struct {
	dir    string
	files  [shardCount]*os.File
	shards [shardCount]*bufio.Writer
	count  int64
	record [recordSize]byte
}

// newTableBuilder makes its files in a new folder below dir (the system's for temporary files if empty).
func newTableBuilder(dir string) (*tableBuilder, error) {
	d, err := os.MkdirTemp(dir, "tutti-rows-")
	if err != nil {
		return nil, err
	}
	b := &tableBuilder{dir: d}
	for i := range b.files {
		f, err := os.Create(filepath.Join(d, fmt.Sprintf("%02x", i)))
		if err != nil {
			b.discard()
			return nil, err
		}
		b.files[i], b.shards[i] = f, bufio.NewWriterSize(f, shardBuffer)
	}
	return b, nil
}

func (b *tableBuilder) add(key rowKey, f found) error {
	b.count++
	copy(b.record[:], key[:])
	binary.LittleEndian.PutUint32(b.record[16:], f.part)
	binary.LittleEndian.PutUint32(b.record[20:], f.row)
	_, err := b.shards[key[0]].Write(b.record[:])
	return err
}

// build returns the table, or nil for one without rows. The builder must not be used afterwards.
func (b *tableBuilder) build() (t *table, err error) {
	defer b.discard()
	if b.count == 0 {
		return nil, nil
	}
	t = &table{bits: 8}
	for b.count>>t.bits > bucketTarget {
		t.bits++
	}
	t.starts = make([]int64, 1, 1<<t.bits+1)
	if t.file, err = os.CreateTemp(filepath.Dir(b.dir), "tutti-table-"); err != nil {
		return nil, err
	}
	_ = os.Remove(t.file.Name()) // the file is gone when it is closed, whatever ends the process
	w := bufio.NewWriterSize(t.file, 1<<20)
	n := int64(0)
	for i := range b.files {
		records, err := b.shard(i)
		if err != nil {
			return nil, err
		}
		for _, r := range records {
			for bucket := t.bucket(rowKey(r[:16])); len(t.starts) <= bucket; {
				t.starts = append(t.starts, n)
			}
			n++
			if _, err = w.Write(r); err != nil {
				return nil, err
			}
		}
	}
	for len(t.starts) <= 1<<t.bits {
		t.starts = append(t.starts, n)
	}
	return t, w.Flush()
}

// shard returns the sorted records of one file.
func (b *tableBuilder) shard(i int) ([][]byte, error) {
	if err := b.shards[i].Flush(); err != nil {
		return nil, err
	}
	if _, err := b.files[i].Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(b.files[i])
	if err != nil {
		return nil, err
	}
	records := slices.Collect(slices.Chunk(data, recordSize))
	slices.SortStableFunc(records, func(x, y []byte) int { return bytes.Compare(x[:16], y[:16]) })
	return records, nil
}

func (b *tableBuilder) discard() {
	for _, f := range b.files {
		if f != nil {
			_ = f.Close()
		}
	}
	_ = os.RemoveAll(b.dir)
}

// bucket returns the number of the bucket of a key.
func (t *table) bucket(key rowKey) int {
	return int(binary.BigEndian.Uint64(key[:]) >> (64 - t.bits))
}

// find returns the place of the result of a row. buf is memory for a bucket and is returned for reuse.
func (t *table) find(key rowKey, buf []byte) (f found, ok bool, _ []byte, err error) {
	i := t.bucket(key)
	size := int(t.starts[i+1]-t.starts[i]) * recordSize
	buf = slices.Grow(buf[:0], size)[:size]
	if _, err = t.file.ReadAt(buf, t.starts[i]*recordSize); err != nil {
		return f, false, buf, err
	}
	for r := range slices.Chunk(buf, recordSize) {
		if rowKey(r[:16]) == key {
			return found{part: binary.LittleEndian.Uint32(r[16:]), row: binary.LittleEndian.Uint32(r[20:])}, true, buf, nil
		}
	}
	return f, false, buf, nil
}

func (t *table) close() {
	if t != nil {
		_ = t.file.Close()
	}
}
