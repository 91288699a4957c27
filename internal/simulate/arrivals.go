package simulate

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-server/tutti/internal/replay"
	"github.com/tutti-server/tutti/scheduler/sim"
)

// Traffic is how requests arrive: generated at a rate, or recorded.
type Traffic struct {
	// Name is the traffic as the user has named it.
	Name     string
	generate func(rate float64, length time.Duration, seed uint64) sim.Arrivals
	recorded sim.Arrivals
}

// Recorded reports whether the traffic has a rate and a length of its own.
func (t *Traffic) Recorded() bool { return t.recorded != nil }

// Rate returns the mean rate of recorded traffic.
func (t *Traffic) Rate() float64 { return t.recorded.Rate() }

// Length returns the length of recorded traffic.
func (t *Traffic) Length() time.Duration { return t.recorded[len(t.recorded)-1] - t.recorded[0] }

// arrivals returns the arrivals at a rate. Recorded ones keep their shape, and become faster or slower.
func (t *Traffic) arrivals(rate float64, length time.Duration, seed uint64) sim.Arrivals {
	if t.Recorded() {
		return t.recorded.Scale(rate)
	}
	return t.generate(rate, length, seed)
}

// The kinds of traffic.
const (
	kindPoisson = "poisson"
	kindTwitter = "twitter"
	kindGamma   = "gamma:"
	kindRates   = "rates:"
)

// Kinds names the kinds of traffic in errors and help.
const Kinds = "poisson, twitter, gamma:CV, rates:FILE or FILE"

// ReadTraffic returns traffic by its name: a kind, or a file or folder with recorded arrivals. Of a trace file it takes the requests to a
// model.
func ReadTraffic(name, model string, seed uint64) (*Traffic, error) {
	t := &Traffic{Name: name}
	var err error
	switch {
	case name == kindPoisson:
		t.generate = sim.Poisson
	case name == kindTwitter:
		t.generate = sim.Twitter
	case strings.HasPrefix(name, kindGamma):
		cv, err := strconv.ParseFloat(name[len(kindGamma):], 64)
		if err != nil || !(cv > 0 && cv <= 100) {
			return nil, fmt.Errorf("'%s': expected the coefficient of variation of the gaps, for example gamma:4", name)
		}
		t.generate = func(rate float64, length time.Duration, seed uint64) sim.Arrivals {
			return sim.Gamma(rate, cv, length, seed)
		}
	case strings.HasPrefix(name, kindRates):
		t.recorded, err = readRates(name[len(kindRates):], seed)
	default:
		t.recorded, err = readRecorded(name, model)
	}
	if err != nil {
		return nil, err
	}
	if t.generate == nil && t.Rate() == 0 {
		return nil, fmt.Errorf("'%s' has %d arrivals, expected at least two at different times", name, len(t.recorded))
	}
	return t, nil
}

// readRecorded reads arrivals from a file, or from a folder of captures.
func readRecorded(path, model string) (sim.Arrivals, error) {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) && !strings.ContainsAny(path, "./") {
		return nil, fmt.Errorf("there are no arrivals '%s', expected %s", path, Kinds)
	}
	if err != nil {
		return nil, err
	}
	if info.IsDir() || strings.EqualFold(filepath.Ext(path), ".npz") {
		return readCaptures(path)
	}
	text, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		return nil, err
	}
	var times []int64
	if bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("[")) {
		times, err = traceTimes(text, model)
	} else {
		times, err = lineTimes(text)
	}
	if err != nil {
		return nil, fmt.Errorf("'%s': %w", path, err)
	}
	return fromTimes(times), nil
}

// fromTimes returns the arrivals of times in ns, from the first one on.
func fromTimes(times []int64) sim.Arrivals {
	slices.Sort(times)
	a := make(sim.Arrivals, len(times))
	for i := range times {
		a[i] = time.Duration(times[i] - times[0])
	}
	return a
}

// lineTimes reads a time from each line: seconds, or a time of RFC 3339. Empty lines and those that begin with # are left out.
func lineTimes(text []byte) (times []int64, err error) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		if seconds, err := strconv.ParseFloat(line, 64); err == nil && math.Abs(seconds) < math.MaxInt64/1e10 {
			times = append(times, int64(seconds*float64(time.Second)))
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, line)
		if err != nil {
			return nil, fmt.Errorf("line %d: found '%.40s', expected the seconds of an arrival, or a time as 2026-01-31T12:00:00.5Z", n, line)
		}
		times = append(times, at.UnixNano())
	}
	return times, lines.Err()
}

// readRates reads numbers of requests per second, separated by spaces or lines.
func readRates(path string, seed uint64) (sim.Arrivals, error) {
	text, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		return nil, err
	}
	var rates []float64
	for i, field := range strings.Fields(string(text)) {
		rate, err := strconv.ParseFloat(field, 64)
		if err != nil || !(rate >= 0 && rate <= 1e9) {
			return nil, fmt.Errorf("'%s': number %d is '%.40s', expected requests in a second", path, i+1, field)
		}
		rates = append(rates, rate)
	}
	return sim.Rates(rates, seed), nil
}

// readCaptures reads the arrivals of the requests of tutti capture.
func readCaptures(path string) (sim.Arrivals, error) {
	list, err := replay.Find([]string{path})
	if err != nil {
		return nil, err
	}
	var times []int64
	for _, c := range list {
		if c.Err != nil {
			return nil, c.Err
		}
		times = append(times, c.About.StartUs*int64(time.Microsecond))
	}
	return fromTimes(times), nil
}

// member is a member of the array in a trace file: the name of a request's model, or a time of the request.
type member struct {
	ID         uint64 `json:"id"`
	Model      string `json:"model_name"`
	Parent     uint64 `json:"parent_id"`
	Timestamps []struct {
		Name string `json:"name"`
		Ns   int64  `json:"ns"`
	} `json:"timestamps"`
}

// traceTimes reads the arrivals of requests to a model, or of all that clients have sent if model is empty, from Triton's trace file. The
// file of a running server has no end.
func traceTimes(text []byte, model string) (times []int64, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	wanted := map[uint64]bool{}
	for d.More() {
		var m member
		if err := d.Decode(&m); errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("expected a trace file of --trace-config triton,file=FILE: %w", err)
		}
		if m.Model != "" {
			wanted[m.ID] = m.Parent == 0 && (model == "" || m.Model == model)
		}
		for _, t := range m.Timestamps {
			if t.Name == "REQUEST_START" && wanted[m.ID] {
				times = append(times, t.Ns)
				delete(wanted, m.ID)
			}
		}
	}
	if len(times) == 0 {
		return nil, fmt.Errorf("it has no request to '%s'", model)
	}
	return times, nil
}
