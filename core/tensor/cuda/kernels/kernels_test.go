//go:build cgo

package kernels_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/compute"
	"github.com/tutti-server/tutti/core/tensor/cuda"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
	"github.com/tutti-server/tutti/core/tensor/cuda/kernels"
)

// The kernels of native steps are compared with the steps in their packages: steps/*/device_test.go.

type rig struct {
	t    *testing.T
	s    tensor.Stream
	k    compute.Kernels
	host *tensor.Pool
}

func open(t *testing.T) *rig {
	t.Helper()
	driver, err := cuda.Open(cudatest.Library(t))
	if err != nil {
		t.Fatal(err)
	}
	list, err := driver.Devices(cuda.Options{Kernels: kernels.Load})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := driver.Close(); err != nil {
			t.Error(err)
		}
		cudatest.Check(t)
	})
	s, err := list[0].NewStream("test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	k, err := compute.Of(list[0])
	if err != nil || k == nil || !compute.Can(list[0]) {
		t.Fatal(k, err)
	}
	return &rig{t, s, k, tensor.NewPool()}
}

// up returns content at the device.
func (r *rig) up(content []byte) *tensor.Buffer {
	r.t.Helper()
	b, err := r.s.Alloc(len(content))
	if err != nil {
		r.t.Fatal(err)
	}
	h, _ := r.host.Alloc(len(content))
	copy(h.Bytes(), content)
	if err := r.s.Copy(b, 0, h, 0, len(content)); err != nil {
		r.t.Fatal(err)
	}
	h.Release()
	return b
}

// down returns the content of a buffer.
func (r *rig) down(b *tensor.Buffer) []byte {
	r.t.Helper()
	h, _ := r.host.Alloc(b.Len())
	defer h.Release()
	if err := r.s.Copy(h, 0, b, 0, b.Len()); err != nil {
		r.t.Fatal(err)
	}
	if err := r.s.Record().Wait(); err != nil {
		r.t.Fatal(err)
	}
	return bytes.Clone(h.Bytes())
}

// TestJoin joins random rows, padded and cut, of all alignments, and compares with a loop.
func TestJoin(t *testing.T) {
	r := open(t)
	g := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		unit := 1 << g.IntN(4)
		j := compute.Join{To: unit * (1 + g.IntN(20)), Off: unit * g.IntN(3)}
		if g.IntN(2) == 0 {
			for range unit {
				j.Elem = append(j.Elem, byte(g.Uint32()))
			}
		}
		var want []byte
		for range j.Off {
			want = append(want, 0)
		}
		for range 1 + g.IntN(20) {
			p := compute.Part{Rows: g.IntN(4), Len: unit * (1 + g.IntN(25)), Off: unit * g.IntN(3)}
			content := make([]byte, p.Off+p.Rows*p.Len+1)
			for i := range content {
				content[i] = byte(g.Uint32())
			}
			p.Buf = r.up(content)
			j.Parts = append(j.Parts, p)
			for row := range p.Rows {
				line := content[p.Off+row*p.Len:][:p.Len]
				for i := range j.To {
					v := byte(0)
					switch {
					case i < len(line):
						v = line[i]
					case j.Elem != nil:
						v = j.Elem[i%len(j.Elem)]
					}
					want = append(want, v)
				}
			}
		}
		j.Dst = r.up(make([]byte, len(want)))
		if err := r.k.Join(r.s, &j); err != nil {
			t.Fatal(err)
		}
		if got := r.down(j.Dst); !bytes.Equal(got, want) {
			t.Fatalf("joined %v is\n% x, want\n% x", j, got, want)
		}
		e := r.s.Record()
		j.Dst.UsedUntil(e)
		j.Dst.Release()
		for _, p := range j.Parts {
			p.Buf.UsedUntil(e)
			p.Buf.Release()
		}
	}
}

// TestLaunchAllocates checks that a launch of a loaded kernel allocates nothing.
func TestLaunchAllocates(t *testing.T) {
	r := open(t)
	src, dst := r.up(make([]byte, 64)), r.up(make([]byte, 64))
	defer func() {
		e := r.s.Record()
		for _, b := range []*tensor.Buffer{src, dst} {
			b.UsedUntil(e)
			b.Release()
		}
	}()
	j := &compute.Join{Dst: dst, To: 32, Parts: []compute.Part{{Buf: src, Rows: 2, Len: 32}}}
	if n := testing.AllocsPerRun(100, func() {
		if err := r.k.Join(r.s, j); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("a launch allocates %v times", n)
	}
}
