// Package mel computes mel spectrograms: power spectra of overlapping windows, summed by triangular filters whose distance grows with the
// frequency as that of tones that listeners judge equally far apart.
//
// With the right options it gives the features of Whisper (log_mel_spectrogram of openai-whisper, WhisperFeatureExtractor of transformers)
// and of librosa (feature.melspectrogram, power_to_db). Sums are in float64 and each result is rounded to float32 once, so results differ
// from those of programs that compute in float32 by their rounding.
package mel

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/dsp/fourier"
)

// Log is a way to compress the energies of the filters.
type Log uint8

// The ways. They are indices of LogNames.
const (
	// None leaves the energies as they are.
	None Log = iota
	// Whisper takes the decimal logarithm of at least 1e-10, raises it to 8 below the largest of the recording, and then adds 4 and divides
	// by 4. The last window is left out.
	Whisper
	// Decibel is librosa's power_to_db.
	Decibel
	// Natural and Decimal take the logarithm of at least Floor.
	Natural
	Decimal
)

// LogNames is indexed by Log.
var LogNames = []string{"none", "whisper", "db", "ln", "log10"}

// Options describe a spectrogram. Frequencies are in Hz, lengths in samples.
type Options struct {
	Rate         int
	FFT          int // length of the transform
	Window       int // length of the Hann window, in the middle of the transform; at most FFT
	Hop          int
	Mels         int
	Lowest, High float64
	// HTK selects the scale of HTK; otherwise it is that of Slaney's Auditory Toolbox.
	HTK bool
	// Area scales the filters to equal area ("slaney" in librosa).
	Area bool
	// Magnitude sums magnitudes instead of powers.
	Magnitude bool
	// Center puts the middle of the first window at the first sample, with padding on both sides: mirrored samples with Reflect, else
	// zeros.
	Center, Reflect bool
	Log             Log
	// Floor is the smallest energy of which a logarithm is taken; smaller ones count as Floor.
	Floor float64
	// RefMax makes the largest energy of the recording 0 dB, else 1 is.
	RefMax bool
	// TopDB raises decibels to so many below the largest of the recording; 0 for none.
	TopDB float64
	// Pad makes all recordings this long, by zeros at the end or by leaving out what is behind; 0 for none.
	Pad int
}

// filter has the weights of one mel over the frequencies from first on.
type filter struct {
	first   int
	weights []float64
}

// Spectrogram computes spectrograms with one set of options. It is safe for concurrent use; Scratch is not.
type Spectrogram struct {
	o       Options
	window  []float64 // o.FFT long
	filters []filter
}

// New returns a spectrogram. It returns an error for options that do not fit each other.
func New(o Options) (*Spectrogram, error) {
	switch {
	case o.Window > o.FFT:
		return nil, fmt.Errorf("the window of %d samples is longer than the transform of %d", o.Window, o.FFT)
	case !(o.Lowest >= 0 && o.Lowest < o.High && o.High <= float64(o.Rate)/2):
		return nil, fmt.Errorf("expected frequencies from 0 to %v Hz, the lowest first, found %v and %v", float64(o.Rate)/2, o.Lowest, o.High)
	}
	return &Spectrogram{o: o, window: hann(o.Window, o.FFT), filters: filters(&o)}, nil
}

// hann returns the periodic Hann window of n samples in the middle of size ones.
func hann(n, size int) []float64 {
	w := make([]float64, size)
	for i := range n {
		w[(size-n)/2+i] = 0.5 - 0.5*math.Cos(2*math.Pi*float64(i)/float64(n))
	}
	return w
}

// filters returns the triangular filters. As in the references, the weights are rounded to float32.
func filters(o *Options) []filter {
	edges := make([]float64, o.Mels+2)
	low, high := toMel(o.Lowest, o.HTK), toMel(o.High, o.HTK)
	for i := range edges {
		edges[i] = toHertz(low+float64(i)*(high-low)/float64(o.Mels+1), o.HTK)
	}
	list := make([]filter, o.Mels)
	for m := range list {
		left, center, right := edges[m], edges[m+1], edges[m+2]
		f := &list[m]
		for k := range o.FFT/2 + 1 {
			hz := float64(k) * float64(o.Rate) / float64(o.FFT)
			w := float32(max(0, min((hz-left)/(center-left), (right-hz)/(right-center))))
			if o.Area {
				w = float32(float64(w) * (2 / (right - left)))
			}
			if w > 0 {
				if f.weights == nil {
					f.first = k
				}
				f.weights = append(f.weights, float64(w))
			}
		}
	}
	return list
}

// Constants of Slaney's scale: linear below 1000 Hz, logarithmic above.
const (
	linearStep = 200.0 / 3
	breakHz    = 1000.0
	breakMel   = breakHz / linearStep
)

var logStep = math.Log(6.4) / 27

func toMel(hz float64, htk bool) float64 {
	switch {
	case htk:
		return 2595 * math.Log10(1+hz/700)
	case hz >= breakHz:
		return breakMel + math.Log(hz/breakHz)/logStep
	}
	return hz / linearStep
}

func toHertz(mel float64, htk bool) float64 {
	switch {
	case htk:
		return 700 * (math.Pow(10, mel/2595) - 1)
	case mel >= breakMel:
		return breakHz * math.Exp(logStep*(mel-breakMel))
	}
	return linearStep * mel
}

// Mels returns the number of filters.
func (s *Spectrogram) Mels() int { return s.o.Mels }

// Frames returns the number of windows of a recording of n samples. It returns an error if the recording is too short.
func (s *Spectrogram) Frames(n int) (int, error) {
	if s.o.Pad > 0 {
		n = s.o.Pad
	}
	var frames int
	switch half := s.o.FFT / 2; {
	case s.o.Center && s.o.Reflect && n <= half:
		return 0, fmt.Errorf("expected more than %d samples, which are mirrored at the ends, found %d", half, n)
	case s.o.Center && n == 0:
		return 0, errors.New("expected at least 1 sample, found 0")
	case s.o.Center:
		frames = 1 + n/s.o.Hop
	case n < s.o.FFT:
		return 0, fmt.Errorf("expected at least %d samples, found %d", s.o.FFT, n)
	default:
		frames = 1 + (n-s.o.FFT)/s.o.Hop
	}
	if s.o.Log == Whisper {
		frames--
	}
	return frames, nil
}

// Scratch is the memory of one recording in progress. The zero value is ready for use.
type Scratch struct {
	fft      *fourier.FFT
	frame    []float64
	spectrum []complex128
	power    []float64
	energies []float64 // [mels, frames]
}

func (c *Scratch) prepare(s *Spectrogram, frames int) {
	if c.fft == nil || c.fft.Len() != s.o.FFT {
		c.fft = fourier.NewFFT(s.o.FFT)
		c.frame, c.spectrum = make([]float64, s.o.FFT), make([]complex128, s.o.FFT/2+1)
		c.power = make([]float64, s.o.FFT/2+1)
	}
	n := frames * s.o.Mels
	c.energies = slices.Grow(c.energies[:0], n)[:n]
}

// Forget drops the energies if they take more than keep bytes.
func (c *Scratch) Forget(keep int) {
	if 8*cap(c.energies) > keep {
		c.energies = nil
	}
}

// Run sets dst, which has Mels x frames elements, to the spectrogram of samples: for each filter its values over time. frames is that of
// Frames.
//
// hot: no allocation once the scratch has grown.
func (s *Spectrogram) Run(dst []float32, c *Scratch, samples []float32, frames int) {
	c.prepare(s, frames)
	if s.o.Pad > 0 {
		samples = samples[:min(len(samples), s.o.Pad)]
	}
	for i := range frames {
		s.load(c.frame, samples, i)
		s.energy(c, i, frames)
	}
	s.compress(dst, c.energies)
}

// load sets frame to window i of the samples.
func (s *Spectrogram) load(frame []float64, samples []float32, i int) {
	n, start := len(samples), i*s.o.Hop
	if s.o.Pad > 0 {
		n = s.o.Pad // behind the samples are zeros, of which the mirror shows some
	}
	if s.o.Center {
		start -= s.o.FFT / 2
	}
	if start >= 0 && start+len(frame) <= len(samples) {
		for k, v := range samples[start : start+len(frame)] {
			frame[k] = float64(v) * s.window[k]
		}
		return
	}
	for k := range frame {
		at := start + k
		if s.o.Reflect && at < 0 {
			at = -at
		}
		if s.o.Reflect && at >= n {
			at = 2*(n-1) - at
		}
		frame[k] = 0
		if at >= 0 && at < len(samples) {
			frame[k] = float64(samples[at]) * s.window[k]
		}
	}
}

// energy sets the energies of window i, which is in c.frame.
func (s *Spectrogram) energy(c *Scratch, i, frames int) {
	c.fft.Coefficients(c.spectrum, c.frame)
	for k, v := range c.spectrum {
		c.power[k] = real(v)*real(v) + imag(v)*imag(v)
	}
	if s.o.Magnitude {
		for k, v := range c.power {
			c.power[k] = math.Sqrt(v)
		}
	}
	for m := range s.filters {
		f := &s.filters[m]
		sum := 0.0
		for k, v := range c.power[f.first:][:len(f.weights)] {
			sum += v * f.weights[k]
		}
		c.energies[m*frames+i] = sum
	}
}

// compress sets dst to the compressed energies.
func (s *Spectrogram) compress(dst []float32, energies []float64) {
	switch s.o.Log {
	case None:
		for i, v := range energies {
			dst[i] = float32(v)
		}
	case Natural:
		for i, v := range energies {
			dst[i] = float32(math.Log(max(v, s.o.Floor)))
		}
	case Decimal:
		for i, v := range energies {
			dst[i] = float32(math.Log10(max(v, s.o.Floor)))
		}
	case Whisper:
		const floor, span = 1e-10, 8
		least := math.Log10(max(largest(energies), floor)) - span
		for i, v := range energies {
			dst[i] = float32((max(math.Log10(max(v, floor)), least) + 4) / 4)
		}
	case Decibel:
		s.decibels(dst, energies)
	}
}

// decibels is librosa's power_to_db.
func (s *Spectrogram) decibels(dst []float32, energies []float64) {
	top, ref := largest(energies), 1.0
	if s.o.RefMax {
		ref = top
	}
	offset := 10 * math.Log10(max(s.o.Floor, ref))
	least := math.Inf(-1)
	if s.o.TopDB > 0 {
		least = 10*math.Log10(max(s.o.Floor, top)) - offset - s.o.TopDB
	}
	for i, v := range energies {
		dst[i] = float32(max(10*math.Log10(max(s.o.Floor, v))-offset, least))
	}
}

// largest returns the largest number, 0 if there is none.
func largest(v []float64) float64 {
	most := 0.0
	for _, x := range v {
		if x > most {
			most = x
		}
	}
	return most
}
