//go:build !race

package dataset_test

import (
	"bytes"
	"fmt"
	"runtime"
	"strconv"
	"testing"

	"github.com/tutti-server/tutti/core/job"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/dataset"
)

// floats returns a text of n rows with lists of 16 floats, in JSON Lines or CSV.
func floats(n int, csv bool) string {
	var b bytes.Buffer
	if csv {
		b.WriteString("id,x\n")
	}
	for i := range n {
		var list []byte
		for j := range 16 {
			if j > 0 {
				list = append(list, ',')
			}
			list = strconv.AppendFloat(list, float64(i*16+j)*0.37, 'f', 4, 64)
		}
		if csv {
			fmt.Fprintf(&b, "%d,\"[%s]\"\n", i, list)
		} else {
			fmt.Fprintf(&b, "{\"id\":%d,\"x\":[%s]}\n", i, list)
		}
	}
	return b.String()
}

// allocated returns the bytes and the allocations of a function, and the most memory that was in use at its calls of mark.
func allocated(do func(mark func())) (total, count, most uint64) {
	var before, m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	do(func() {
		runtime.GC()
		runtime.ReadMemStats(&m)
		most = max(most, m.HeapAlloc)
	})
	runtime.ReadMemStats(&m)
	return m.TotalAlloc - before.TotalAlloc, m.Mallocs - before.Mallocs, most
}

// TestCutBudget checks that cutting allocates hardly more for ten times the rows, and that what is in use does not grow. It
// is not parallel: the runtime counts the allocations of the whole process.
func TestCutBudget(t *testing.T) {
	for _, csv := range []bool{false, true} {
		name := map[bool]string{false: "a.jsonl", true: "a.csv"}[csv]
		measure := func(rows int) (total, count, most uint64) {
			s := open(t, write(t, map[string]string{name: floats(rows, csv)}), "").Select("id", "x")
			return allocated(func(mark func()) {
				n := 0
				for c, err := range s.Cut(t.Context(), dataset.CutOptions{MaxRows: 1000}) {
					if err != nil {
						t.Fatal(err)
					}
					if n++; n%5 == 0 && c.Rows > 0 {
						mark()
					}
				}
			})
		}
		_, _, small := measure(10_000)
		total, count, most := measure(100_000)
		t.Logf("%s: %d bytes in %d allocations for 100000 rows; in use %d, with a tenth of the rows %d", name, total, count, most, small)
		if total > 100_000*16+1<<20 || count > 10_000 || most > small+1<<20 {
			t.Errorf("%s: %d bytes in %d allocations for 100000 rows, want at most 16 bytes a row; in use %d, with a tenth of the rows %d", name, total, count, most, small)
		}
	}
}

// TestBindBudget checks that a batch reuses its memory. It is not parallel: the runtime counts the allocations of the
// whole process.
func TestBindBudget(t *testing.T) {
	b, list := floatRows(t, 64)
	batch := b.NewBatch(tensor.NewPool())
	bind := func() {
		for _, row := range list {
			if ok, err := batch.Add(row); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		in, err := batch.Inputs()
		if err != nil {
			t.Fatal(err)
		}
		in[0].Tensor.Release()
	}
	bind()
	if n := testing.AllocsPerRun(100, bind); n > 0 {
		t.Errorf("%v allocations for 64 rows, want none", n)
	}
}

// floatRows returns rows with 16 floats, and their binder.
func floatRows(tb testing.TB, n int) (*dataset.Binder, []*dataset.Row) {
	tb.Helper()
	s := open(tb, write(tb, map[string]string{"a.jsonl": floats(n, false)}), "").Select("x")
	list, err := s.Head(tb.Context(), n)
	if err != nil {
		tb.Fatal(err)
	}
	b, err := dataset.NewBinder(model(64, port("x", tensor.FP32, 16)), &job.Spec{}, []dataset.Column{{Name: "x", Kind: dataset.JSON}})
	if err != nil {
		tb.Fatal(err)
	}
	return b, list
}

// BenchmarkBind binds 100,000 rows of 16 floats in batches of 64.
func BenchmarkBind(b *testing.B) {
	binder, list := floatRows(b, 100_000)
	batch := binder.NewBatch(tensor.NewPool())
	b.ReportAllocs()
	for b.Loop() {
		for _, row := range list {
			ok, err := batch.Add(row)
			if !ok && err == nil {
				release(b, batch)
				ok, err = batch.Add(row)
			}
			if !ok || err != nil {
				b.Fatal(ok, err)
			}
		}
		release(b, batch)
	}
	b.ReportMetric(float64(b.N)*16*100_000/b.Elapsed().Seconds()/1e6, "Mcells/s")
}

func release(tb testing.TB, batch *dataset.Batch) {
	tb.Helper()
	in, err := batch.Inputs()
	if err != nil {
		tb.Fatal(err)
	}
	for i := range in {
		in[i].Tensor.Release()
	}
}

// BenchmarkRead reads and cuts rows of 16 floats.
func BenchmarkRead(b *testing.B) {
	for _, name := range []string{"a.jsonl", "a.csv"} {
		text := floats(100_000, name == "a.csv")
		s := open(b, write(b, map[string]string{name: text}), "").Select("x")
		list := cut(b, s, dataset.CutOptions{})
		b.Run("cut/"+name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				cut(b, s, dataset.CutOptions{})
			}
		})
		b.Run("read/"+name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				for _, c := range list {
					for _, err := range s.Read(b.Context(), c) {
						if err != nil {
							b.Fatal(err)
						}
					}
				}
			}
		})
	}
}

// BenchmarkPart writes 10,000 rows of 16 floats.
func BenchmarkPart(b *testing.B) {
	data := make([]byte, 10_000*64)
	for i := range data {
		data[i] = byte(i*31) & 0x3f
	}
	column := []dataset.Column{{Name: "y", Kind: dataset.Tensor, DType: tensor.FP32, Shape: []int64{16}}}
	for _, format := range []string{"jsonl", "csv", "parquet", "npz"} {
		b.Run(format, func(b *testing.B) {
			o := openOutput(b, b.TempDir(), format)
			for b.Loop() {
				p, err := o.Part(b.Context(), "p", column)
				if err != nil {
					b.Fatal(err)
				}
				for i := range int64(10_000) {
					c := []dataset.Cell{{Kind: dataset.Tensor, DType: tensor.FP32, Shape: column[0].Shape, Data: data[i*64 : i*64+64]}}
					if err := p.Write(i, c); err != nil {
						b.Fatal(err)
					}
				}
				if _, err := p.Close(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)*160_000/b.Elapsed().Seconds()/1e6, "Mcells/s")
		})
	}
}
