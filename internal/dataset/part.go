package dataset

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"iter"
	"math/bits"
	"os"
	"strings"

	"github.com/tutti-server/tutti/core/status"
)

// Sum is a checksum of results: the sum, modulo 2^256, of the SHA-256 of each row's number and content. It is the same
// however the rows are divided into parts, and in which order parts are added. The zero Sum is that of no rows.
type Sum [4]uint64

// Add adds the sum of other rows.
func (s *Sum) Add(o Sum) {
	carry := uint64(0)
	for i := range s {
		s[i], carry = bits.Add64(s[i], o[i], carry)
	}
}

// String returns the sum in hexadecimal.
func (s Sum) String() string {
	var b [32]byte
	for i, v := range s {
		binary.BigEndian.PutUint64(b[8*(3-i):], v)
	}
	return hex.EncodeToString(b[:])
}

// ParseSum reads what String wrote.
func ParseSum(text string) (s Sum, err error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != 32 {
		return s, status.Errorf(status.InvalidArg, "'%s' is no checksum of results", text)
	}
	for i := range s {
		s[i] = binary.BigEndian.Uint64(b[8*(3-i):])
	}
	return s, nil
}

// PartInfo describes a part that is written.
type PartInfo struct {
	Path   string // below the output, with the ending of the format
	Rows   int64
	Bytes  int64
	SHA256 string // of the file, in hexadecimal
	Sum    Sum    // of the rows
}

// Part writes one file of results. Close or Abort must be called once. It is not safe for concurrent use.
type Part struct {
	out  *Output
	ctx  context.Context //nolint:containedctx // a Part is one call in pieces
	file *os.File
	buf  *bufio.Writer
	to   counted
	enc  encoder
	info PartInfo
	row  []byte // memory of rowSum
	err  error
}

// counted counts and hashes what is written.
type counted struct {
	w   io.Writer
	sum hash.Hash
	n   int64
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.sum.Write(b[:n])
	c.n += int64(n)
	return n, err
}

// Check refuses columns that the format of the output cannot have, before anything is written.
func (o *Output) Check(columns []Column) error {
	_, err := o.encoder(io.Discard, columns)
	return err
}

// encoder returns the encoder of the output's format.
func (o *Output) encoder(w io.Writer, columns []Column) (encoder, error) {
	for i := range columns {
		if strings.ContainsRune(columns[i].Name, 0) {
			return nil, status.Errorf(status.InvalidArg, "the name of the column %q has a zero byte", columns[i].Name)
		}
	}
	switch o.format {
	case "csv":
		return newCSVEncoder(w, columns)
	case "parquet":
		return newParquetEncoder(w, columns)
	case "npz":
		return newNPZEncoder(w, columns)
	}
	return newJSONEncoder(w, columns), nil
}

// Part starts a part with a name below the output, without the ending of the format. It appears when Close returns.
func (o *Output) Part(ctx context.Context, name string, columns []Column) (*Part, error) {
	key := name + "." + o.format
	f, err := o.stage(key)
	if err != nil {
		return nil, err
	}
	p := &Part{out: o, ctx: ctx, file: f, info: PartInfo{Path: key}}
	p.to = counted{w: f, sum: sha256.New()}
	p.buf = bufio.NewWriterSize(&p.to, 256<<10)
	if p.enc, err = o.encoder(p.buf, columns); err != nil {
		return nil, errors.Join(err, discard(f))
	}
	return p, nil
}

// stage makes the temporary file of a part: beside the part, or in the temporary folder for a bucket.
func (o *Output) stage(key string) (*os.File, error) {
	if o.bucket == nil {
		return o.create(key)
	}
	f, err := os.CreateTemp("", temporary+"*")
	return f, localError("writing", os.TempDir(), err)
}

// Write adds the result of a row, which is given by its number in the dataset. An error with the code InvalidArg is that of
// a row that the format cannot have: the row is not in the part, to which others can be added.
func (p *Part) Write(number int64, cells []Cell) error {
	if p.err != nil {
		return p.err
	}
	content, err := p.enc.write(cells)
	if err != nil {
		if status.CodeOf(err) == status.InvalidArg {
			return err
		}
		p.err = p.failed(err)
		return p.err
	}
	p.info.Rows++
	p.info.Sum.Add(rowSum(&p.row, number, content))
	return nil
}

// rowSum returns the Sum of one row. memory is reused.
func rowSum(memory *[]byte, number int64, content []byte) Sum {
	text := binary.BigEndian.AppendUint64((*memory)[:0], uint64(number))
	text = append(text, content...)
	*memory = text
	b := sha256.Sum256(text)
	var s Sum
	for i := range s {
		s[i] = binary.BigEndian.Uint64(b[8*(3-i):])
	}
	return s
}

// failed names the place in an error.
func (p *Part) failed(err error) error {
	if errors.As(err, new(*status.Error)) {
		return err
	}
	name := p.out.Name(p.info.Path)
	if p.out.bucket != nil {
		name = p.file.Name()
	}
	return localError("writing", name, err)
}

// Close makes the part visible and durable. After an error the part is not there, or is the one that was there before.
func (p *Part) Close() (*PartInfo, error) {
	if p.err == nil {
		p.err = errors.Join(p.enc.close(), p.buf.Flush())
	}
	if p.err != nil {
		return nil, errors.Join(p.failed(p.err), discard(p.file))
	}
	p.info.Bytes, p.info.SHA256 = p.to.n, hexOf(p.to.sum.Sum(nil))
	if p.out.bucket == nil {
		if err := p.out.commit(p.file, p.info.Path); err != nil {
			return nil, err
		}
		return &p.info, nil
	}
	_, err := p.file.Seek(0, io.SeekStart)
	if err == nil {
		err = bucketError(p.out.bucket.Write(p.ctx, p.info.Path, p.file, p.info.Bytes))
	}
	if err = errors.Join(err, discard(p.file)); err != nil {
		return nil, err
	}
	return &p.info, nil
}

// Abort drops the part.
func (p *Part) Abort() error { return discard(p.file) }

// Rows streams the rows of a part from one on, counted from 0 in the part, with the cells of the named columns. They can
// be written to another part, which then has the same Sum.
func (o *Output) Rows(ctx context.Context, part string, from int64, columns []string) iter.Seq2[*Row, error] {
	return func(yield func(*Row, error) bool) {
		f, err := o.stat(ctx, part)
		if err != nil {
			yield(nil, err)
			return
		}
		s := &Set{uri: o.Name(part), place: &place{o.store(), part, ""}, name: o.format, format: formats()[o.format], named: true, sel: newSelection(columns)}
		r := chunkReader{s: s, sel: s.sel, hash: newHasher(), sum: newHasher()}
		stopped := false
		err = s.scan(ctx, &source{o.store(), f, ""}, &Slice{Row: from}, s.sel, false, func(rec *record) bool {
			if r.next < from && s.format.byOffset() {
				r.next++
				return true
			}
			r.next = max(r.next, from)
			stopped = !yield(r.row(&source{o.store(), f, ""}, rec), nil)
			return !stopped && ctx.Err() == nil
		})
		if err == nil && ctx.Err() != nil {
			err = status.ErrCancelled
		}
		if err != nil && !stopped {
			yield(nil, err)
		}
	}
}
