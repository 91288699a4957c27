package device_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/tutti-server/tutti/internal/goldentest"
	"github.com/tutti-server/tutti/scheduler/device"
)

// TestScripts checks the order of admissions with each script of testdata. A script has the server's settings, the
// instances and the events; the expected result of each line follows "->".
//
//	limit R 4 [DEVICE]                        a --rate-limit-resource
//	threads N, executions N                   other settings
//	instance NAME [device=N] [priority=N] [threads=N] [R=N] [R=N*] ...   "*" is shared by all devices
//	enter NAME                                admitted, or waits
//	leave NAME                                the instances that this admits, in order
//	again NAME                                it has more to execute: the instances that this admits, perhaps itself
//	close NAME                                the model of the instance is removed; the instances that this admits
//	busy NAME ... xN                          all have requests all the time, one execution after the other: how often each was admitted
func TestScripts(t *testing.T) {
	t.Parallel()
	goldentest.Archives(t, func(t *testing.T, a *txtar.Archive) {
		t.Helper()
		for i := range a.Files {
			a.Files[i].Data = []byte(play(t, string(a.Files[i].Data)))
		}
	})
}

// stage is a running script.
type stage struct {
	settings device.Settings
	arbiter  *device.Arbiter
	groups   map[string]*device.Group
	let      []string // admitted by the current line
}

func play(t *testing.T, text string) string {
	t.Helper()
	s := &stage{settings: device.Settings{RateLimit: true}, groups: map[string]*device.Group{}}
	var out strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		what, _, _ := strings.Cut(line, " -> ")
		out.WriteString(what)
		if said := s.do(t, strings.Fields(what)); said != "" {
			out.WriteString(" -> " + said)
		}
		out.WriteString("\n")
	}
	return out.String()
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (s *stage) do(t *testing.T, words []string) string {
	t.Helper()
	if len(words) == 0 {
		return ""
	}
	s.let = nil
	switch words[0] {
	case "limit":
		l := device.Limit{Name: words[1], Count: int64(number(t, words[2])), Device: device.EveryDevice}
		if len(words) > 3 {
			l.Device = number(t, words[3])
		}
		s.settings.Limits = append(s.settings.Limits, l)
	case "off":
		s.settings.RateLimit = false
	case "threads":
		s.settings.Threads = number(t, words[1])
	case "executions":
		s.settings.Executions = number(t, words[1])
	case "instance":
		return s.add(t, words[1], words[2:])
	case "enter":
		if s.enter(words[1]) {
			return "in"
		}
		return "waits"
	case "leave":
		s.groups[words[1]].Limiters[0].Release()
		return strings.Join(s.let, " ")
	case "again":
		if s.groups[words[1]].Limiters[0].Reacquire() {
			s.let = append(s.let, words[1])
		}
		return strings.Join(s.let, " ")
	case "close":
		s.groups[words[1]].Close()
		s.groups[words[1]].Close()
		return strings.Join(s.let, " ")
	case "busy":
		return s.busy(t, words[1:len(words)-1], number(t, words[len(words)-1][1:]))
	default:
		t.Fatalf("unknown %q", words)
	}
	return ""
}

func (s *stage) add(t *testing.T, name string, words []string) string {
	t.Helper()
	if s.arbiter == nil {
		s.arbiter = device.New(s.settings)
	}
	ask := device.Demand{OnCPU: true}
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		shared := strings.HasSuffix(value, "*")
		n := number(t, strings.TrimSuffix(value, "*"))
		switch key {
		case "device":
			ask.Device, ask.OnCPU = n, false
		case "priority":
			ask.Priority = uint32(n)
		case "threads":
			ask.Threads = n
		default:
			ask.Resources = append(ask.Resources, device.Resource{Name: key, Count: int64(n), Shared: shared})
		}
	}
	g, err := s.arbiter.Register([]device.Demand{ask})
	if err != nil {
		return err.Error()
	}
	s.groups[name] = g
	if g.Limiters[0] == nil {
		return "no limiter"
	}
	return ""
}

func (s *stage) enter(name string) bool {
	return s.groups[name].Limiters[0].Acquire(func() { s.let = append(s.let, name) })
}

// busy runs n executions of instances that always have requests: the executions end in the order of their admissions.
func (s *stage) busy(t *testing.T, names []string, n int) string {
	t.Helper()
	var in []string
	for _, name := range names {
		if s.enter(name) {
			in = append(in, name)
		}
	}
	count := map[string]int{}
	for range n {
		in = append(in, s.let...)
		s.let = nil
		if len(in) == 0 {
			return "stuck"
		}
		first := in[0]
		in = in[1:]
		count[first]++
		if s.groups[first].Limiters[0].Reacquire() {
			in = append(in, first)
		}
	}
	for in = append(in, s.let...); len(in) > 0; in = append(in[1:], s.let...) {
		s.let = nil
		s.groups[in[0]].Limiters[0].Release()
	}
	var said []string
	for _, name := range slices.Sorted(slices.Values(names)) {
		said = append(said, fmt.Sprintf("%s:%d", name, count[name]))
	}
	return strings.Join(said, " ")
}
