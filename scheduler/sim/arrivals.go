package sim

import (
	"math"
	"math/rand/v2"
	"time"
)

// Arrivals are the times at which requests arrive, ascending.
type Arrivals []time.Duration

// Poisson returns arrivals with exponential gaps at a mean rate per second.
func Poisson(rate float64, length time.Duration, seed uint64) Arrivals {
	return Gamma(rate, 1, length, seed)
}

// Gamma returns arrivals whose gaps have a gamma distribution with a coefficient of variation: 1 is Poisson's process, 4 comes in bursts.
func Gamma(rate, cv float64, length time.Duration, seed uint64) Arrivals {
	r := random(seed)
	shape := 1 / (cv * cv)
	scale := 1 / (rate * shape)
	var a Arrivals
	for at := 0.0; ; {
		at += gamma(r, shape) * scale
		if at >= length.Seconds() {
			return a
		}
		a = append(a, time.Duration(at*float64(time.Second)))
	}
}

// gamma draws from a gamma distribution with scale 1 (Marsaglia and Tsang 2000).
func gamma(r *rand.Rand, shape float64) float64 {
	if shape < 1 {
		return gamma(r, shape+1) * math.Pow(r.Float64(), 1/shape)
	}
	d := shape - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := r.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v = v * v * v
		if u := r.Float64(); math.Log(u) < 0.5*x*x+d-d*v+d*math.Log(v) {
			return d * v
		}
	}
}

func random(seed uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15)) //nolint:gosec // equal seeds give equal arrivals
}

// Rates returns arrivals with a rate for each second; within a second they are Poisson's.
func Rates(perSecond []float64, seed uint64) Arrivals {
	r := random(seed)
	var a Arrivals
	left := r.ExpFloat64() // how much rate must pass until the next arrival
	for i, rate := range perSecond {
		at := 0.0
		for rate > 0 && left <= rate*(1-at) {
			at += left / rate
			a = append(a, time.Duration((float64(i)+at)*float64(time.Second)))
			left = r.ExpFloat64()
		}
		left -= max(rate, 0) * (1 - at)
	}
	return a
}

// Twitter returns arrivals in the shape of a public trace of Twitter's messages: 22 days of counts per second, 63.6 on average. Most
// windows of ten minutes vary from second to second as Poisson counts of that size do (coefficient of variation 0.16, variance over mean
// 1.2); the others swing over minutes. Here each second is a Poisson count of 64 around a swing with a deviation of 0.1 and a memory of a
// minute, scaled to the mean rate.
func Twitter(rate float64, length time.Duration, seed uint64) Arrivals {
	const (
		mean   = 64
		swing  = 0.1
		memory = 60 // seconds
	)
	r := random(seed ^ 0x7477)
	rates, sum, around := make([]float64, int(math.Ceil(length.Seconds()))), 0.0, r.NormFloat64()
	for i := range rates {
		keep := math.Exp(-1.0 / memory)
		around = around*keep + r.NormFloat64()*math.Sqrt(1-keep*keep)
		rates[i] = count(r, mean*math.Exp(swing*around))
		sum += rates[i]
	}
	for i := range rates {
		rates[i] *= rate * float64(len(rates)) / sum
	}
	return Rates(rates, seed)
}

// count draws a Poisson count.
func count(r *rand.Rand, mean float64) float64 {
	n := 0
	for at := r.ExpFloat64(); at < mean; at += r.ExpFloat64() {
		n++
	}
	return float64(n)
}

// Rate returns the mean rate per second, from the first arrival to the last.
func (a Arrivals) Rate() float64 {
	if len(a) < 2 || a[len(a)-1] == a[0] {
		return 0
	}
	return float64(len(a)-1) / (a[len(a)-1] - a[0]).Seconds()
}

// Scale returns the arrivals at another mean rate: all gaps become longer or shorter by the same factor, and the first arrival is at 0.
func (a Arrivals) Scale(rate float64) Arrivals {
	factor := 1.0
	if now := a.Rate(); now > 0 {
		factor = now / rate
	}
	scaled := make(Arrivals, len(a))
	for i := range a {
		scaled[i] = time.Duration(float64(a[i]-a[0]) * factor)
	}
	return scaled
}
