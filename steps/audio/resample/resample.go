// Package resample changes the sampling rate of audio as torchaudio.transforms.Resample does: band-limited sinc interpolation with a
// Hann or Kaiser window (J. O. Smith, "Digital Audio Resampling Home Page", 2002). The filter is computed in float64 and rounded to
// float32 once; sums are in float32, whose order differs from PyTorch's.
//
// For example, 44,100 samples at 44.1 kHz become 16,000 samples at 16 kHz.
package resample

import (
	"fmt"
	"math"
	"slices"
	"sync"
)

// Options are those of torchaudio, whose names they have.
type Options struct {
	// Width is lowpass_filter_width: zero crossings of the sinc on each side. More make a sharper filter.
	Width int
	// Rolloff is the cut-off frequency as a fraction of the lower rate's Nyquist frequency, above 0 and at most 1.
	Rolloff float64
	// Kaiser selects the Kaiser window with parameter Beta instead of the Hann window.
	Kaiser bool
	Beta   float64
}

// Default are torchaudio's defaults.
var Default = Options{Width: 6, Rolloff: 0.99}

// maxTaps bounds the numbers of a filter. Those between the usual rates have less than a hundredth of it.
const maxTaps = 1 << 21

// Resampler converts from one rate to another. It is safe for concurrent use.
type Resampler struct {
	from, to int // the rates without their common divisor
	width    int // of a phase's window, in samples before the output's place
	phases   []phase
}

// phase has the filter of every to-th output.
type phase struct {
	first int // the first sample that counts, relative to the start of the block of from samples
	taps  []float32
}

// New returns a resampler from one rate to another, both above 0. It returns an error for rates whose filter would be too large, such as
// 44,101 Hz with a wide window.
func New(from, to int, o Options) (*Resampler, error) {
	d := gcd(from, to)
	r := &Resampler{from: from / d, to: to / d}
	base := float64(min(r.from, r.to)) * o.Rolloff
	r.width = int(math.Ceil(float64(o.Width) * float64(r.from) / base))
	if float64(2*r.width+2)*float64(r.to) > maxTaps {
		return nil, fmt.Errorf("no filter from %d Hz to %d Hz: expected rates with a larger common divisor than %d, or a lower rate", from, to, d)
	}
	for i := range r.to {
		r.phases = append(r.phases, r.phase(i, base, o))
	}
	return r, nil
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// phase computes the filter of output i of a block.
func (r *Resampler) phase(i int, base float64, o Options) phase {
	var p phase
	limit, scale := float64(o.Width), base/float64(r.from)
	start := -float64(i) / float64(r.to)
	for k := -r.width; k < r.width+r.from; k++ {
		t := (start + float64(k)/float64(r.from)) * base
		if t <= -limit {
			continue
		}
		if t >= limit {
			break
		}
		if p.taps == nil {
			p.first = k
		}
		var window float64
		if o.Kaiser {
			window = bessel0(o.Beta*math.Sqrt(1-t*t/(limit*limit))) / bessel0(o.Beta)
		} else {
			c := math.Cos(t * math.Pi / limit / 2)
			window = c * c
		}
		sinc := 1.0
		if t != 0 {
			sinc = math.Sin(t*math.Pi) / (t * math.Pi)
		}
		p.taps = append(p.taps, float32(sinc*window*scale))
	}
	return p
}

// bessel0 is the modified Bessel function of the first kind and order 0, by its power series.
func bessel0(x float64) float64 {
	sum, term := 1.0, 1.0
	for k := 1.0; term > sum*1e-18; k++ {
		term *= x * x / (4 * k * k)
		sum += term
	}
	return sum
}

// Same reports whether the rates are equal, so that samples may be copied.
func (r *Resampler) Same() bool { return r.from == r.to }

// Len returns the number of outputs of n samples: n times the quotient of the rates, rounded up.
func (r *Resampler) Len(n int) int {
	return (n*r.to + r.from - 1) / r.from
}

// Run sets dst, which has Len(len(src)) elements, to the resampled src. Samples before and after src count as 0.
//
// hot: no allocation.
func (r *Resampler) Run(dst, src []float32) {
	if r.Same() {
		copy(dst, src)
		return
	}
	block, i := 0, 0
	for n := range dst {
		p := &r.phases[i]
		from, taps := block+p.first, p.taps
		if from < 0 {
			taps, from = taps[min(-from, len(taps)):], 0
		}
		if from >= len(src) {
			taps = nil
		} else if len(taps) > len(src)-from {
			taps = taps[:len(src)-from]
		}
		if len(taps) == 0 {
			dst[n] = 0
		} else {
			dst[n] = dot(taps, src[from:])
		}
		if i++; i == r.to {
			i, block = 0, block+r.from
		}
	}
}

// dot returns the sum of products of a and as many elements of b.
func dot(a, b []float32) float32 {
	b = b[:len(a)]
	var s0, s1, s2, s3 float32
	for len(a) >= 4 && len(b) >= 4 {
		s0 += a[0] * b[0]
		s1 += a[1] * b[1]
		s2 += a[2] * b[2]
		s3 += a[3] * b[3]
		a, b = a[4:], b[4:]
	}
	for i, v := range a {
		s0 += v * b[i]
	}
	return s0 + s1 + (s2 + s3)
}

// Cache makes resamplers to one rate and keeps them. To must be set before the first call. It is safe for concurrent use.
type Cache struct {
	To      int
	Options Options
	mu      sync.Mutex
	made    []made
}

type made struct {
	from int
	*Resampler
}

// maxCached is the number of rates that a Cache keeps. Files have few rates; a client that sends many must not fill the memory.
const maxCached = 8

// From returns the resampler of a rate.
func (c *Cache) From(rate int) (*Resampler, error) {
	if r := c.find(rate); r != nil {
		return r, nil
	}
	r, err := New(rate, c.To, c.Options) // outside of the lock: others need not wait
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.made) == maxCached {
		c.made = slices.Delete(c.made, 0, 1)
	}
	c.made = append(c.made, made{rate, r})
	return r, nil
}

func (c *Cache) find(rate int) *Resampler {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.made {
		if m.from == rate {
			return m.Resampler
		}
	}
	return nil
}
