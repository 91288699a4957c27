package opencv_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"testing"

	"github.com/tutti-server/tutti/steps/image/opencv"
)

var samplings = []opencv.Sampling{opencv.Nearest, opencv.Linear, opencv.Cubic, opencv.Area, opencv.Lanczos4}

// record is a line of testdata/resize.gold.gz; make_gold.py describes the fields.
type record struct {
	In   [3]int
	At   int
	Bits bool
	Out  [2]int
	Sums []uint32
}

func readGold(t *testing.T) (records []record) {
	t.Helper()
	f, err := os.Open("testdata/resize.gold.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(z); lines.Scan(); {
		var r record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		records = append(records, r)
	}
	if len(records) < 500 {
		t.Fatalf("%d records", len(records))
	}
	return records
}

// stream generates the bytes of the test images.
func stream() []byte {
	out, state := make([]byte, 1<<16), uint32(1)
	for i := range out {
		state = state*1664525 + 1013904223
		out[i] = byte(state >> 24)
	}
	return out
}

// image is a Source, and the Sink of the result.
type image struct {
	pix    []byte
	stride int
	last   int // the last row read
	out    []byte
}

func (m *image) Line(y int) []byte {
	if y < m.last {
		panic(fmt.Sprintf("row %d after row %d", y, m.last))
	}
	m.last = y
	return m.pix[y*m.stride:][:m.stride]
}

func (m *image) Put(i int, row []byte) {
	if i*len(row) != len(m.out) {
		panic(fmt.Sprintf("row %d is not the next one", i))
	}
	m.out = append(m.out, row...)
}

func (r *record) image(bytes []byte) *image {
	m := &image{stride: r.In[0] * r.In[2]}
	m.pix = append(m.pix, bytes[r.At:][:m.stride*r.In[1]]...)
	if r.Bits {
		for i, v := range m.pix {
			m.pix[i] = v >> 7 * 255
		}
	}
	return m
}

// TestGold compares whole results with OpenCV by their checksums, and parts of results with the whole.
func TestGold(t *testing.T) {
	t.Parallel()
	bytes := stream()
	var z opencv.Resizer // one for all cases, so that its kept memory is used
	for i, r := range readGold(t) {
		x, y := opencv.Span{In: r.In[0], Out: r.Out[0], N: r.Out[0]}, opencv.Span{In: r.In[1], Out: r.Out[1], N: r.Out[1]}
		for k, s := range samplings {
			m := r.image(bytes)
			j := &opencv.Job{Sampling: s, Channels: r.In[2], X: x, Y: y, From: m, To: m}
			z.Run(j)
			if crc32.ChecksumIEEE(m.out) != r.Sums[k] {
				t.Errorf("record %d: sampling %d of %v to %v is not OpenCV's", i, s, r.In, r.Out)
			}
			samePart(t, &z, j, m.out)
		}
	}
}

// samePart computes a part of a result and compares it with the whole.
func samePart(t *testing.T, z *opencv.Resizer, j *opencv.Job, whole []byte) {
	t.Helper()
	m, _ := j.From.(*image)
	part := &image{pix: m.pix, stride: m.stride}
	c := *j
	c.From, c.To = part, part
	c.X.From, c.Y.From = j.X.Out/3, j.Y.Out/4
	c.X.N, c.Y.N = max(j.X.Out-c.X.From-j.X.Out/5, 1), max(j.Y.Out-c.Y.From-j.Y.Out/6, 1)
	z.Run(&c)
	var want []byte
	for y := range c.Y.N {
		want = append(want, whole[((c.Y.From+y)*j.X.Out+c.X.From)*j.Channels:][:c.X.N*j.Channels]...)
	}
	if !bytes.Equal(want, part.out) {
		t.Errorf("sampling %d of %v, %v: a part differs from the whole", j.Sampling, c.X, c.Y)
	}
}

func BenchmarkResize(b *testing.B) {
	m := &image{pix: bytes.Repeat(stream(), 95), stride: 3 * 1920}
	for k, name := range []string{"nearest", "linear", "cubic", "area", "lanczos4"} {
		b.Run(name, func(b *testing.B) {
			var z opencv.Resizer
			for b.Loop() {
				m.out, m.last = m.out[:0], 0
				z.Run(&opencv.Job{
					Sampling: samplings[k], Channels: 3, From: m, To: m,
					X: opencv.Span{In: 1920, Out: 640, N: 640}, Y: opencv.Span{In: 1080, Out: 361, N: 361},
				})
			}
		})
	}
}
