package resample_test

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/steps/audio/resample"
	"github.com/tutti-server/tutti/steps/steptest"
)

func floats(tb testing.TB, text string) []float32 {
	tb.Helper()
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		tb.Fatal(err)
	}
	out := make([]float32, len(data)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return out
}

// TestGold compares samples with those of torchaudio, whose sums are in another order.
func TestGold(t *testing.T) {
	t.Parallel()
	var cases []struct {
		From, To           int
		Options            resample.Options
		Samples, Resampled string
	}
	steptest.ReadGold(t, "gold.json.gz", &cases)
	for _, c := range cases {
		t.Run(fmt.Sprintf("%d to %d, width %d", c.From, c.To, c.Options.Width), func(t *testing.T) {
			t.Parallel()
			r, err := resample.New(c.From, c.To, c.Options)
			if err != nil {
				t.Fatal(err)
			}
			src, want := floats(t, c.Samples), floats(t, c.Resampled)
			if r.Len(len(src)) != len(want) {
				t.Fatalf("%d samples, want %d", r.Len(len(src)), len(want))
			}
			got, worst := make([]float32, len(want)), 0.0
			r.Run(got, src)
			for i, v := range got {
				worst = max(worst, math.Abs(float64(v)-float64(want[i])))
			}
			t.Logf("largest difference %.2g", worst)
			if worst > 1e-6 {
				t.Errorf("a sample differs by %v, more than 1e-6", worst)
			}
		})
	}
}

// TestEdges takes rates that are equal, that have no common divisor, and no samples.
func TestEdges(t *testing.T) {
	t.Parallel()
	r, err := resample.New(16000, 16000, resample.Default)
	if err != nil || !r.Same() {
		t.Fatalf("equal rates: %v, %v", r, err)
	}
	got := make([]float32, 2)
	if r.Run(got, []float32{1, 2}); got[0] != 1 || got[1] != 2 {
		t.Errorf("equal rates give %v", got)
	}
	if _, err := resample.New(767999, 16000, resample.Default); err == nil || !strings.Contains(err.Error(), "no filter from 767999 Hz to 16000 Hz") {
		t.Errorf("a filter of millions of numbers: %v", err)
	}
	if r, err = resample.New(44100, 16000, resample.Default); err != nil || r.Len(0) != 0 || r.Len(1) != 1 {
		t.Errorf("no samples: %v", err)
	}
	r.Run(nil, nil)
}

// TestCache keeps resamplers, but not of any number of rates.
func TestCache(t *testing.T) {
	t.Parallel()
	c := resample.Cache{To: 16000, Options: resample.Default}
	first, err := c.From(8000)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := c.From(8000); again != first || err != nil {
		t.Errorf("a rate that is known has a new resampler: %v", err)
	}
	for i := range 20 {
		if _, err := c.From(9000 + 1000*i); err != nil {
			t.Fatal(err)
		}
	}
	if again, _ := c.From(8000); again == first {
		t.Error("20 rates later the first one is still there")
	}
	if _, err := c.From(767999); err == nil {
		t.Error("a rate without a filter gives no error")
	}
}

func BenchmarkRun(b *testing.B) {
	for _, from := range []int{48000, 44100, 8000} {
		b.Run(strconv.Itoa(from), func(b *testing.B) {
			r, err := resample.New(from, 16000, resample.Default)
			if err != nil {
				b.Fatal(err)
			}
			src := make([]float32, from)
			dst := make([]float32, r.Len(len(src)))
			b.ReportAllocs()
			for b.Loop() {
				r.Run(dst, src)
			}
		})
	}
}
