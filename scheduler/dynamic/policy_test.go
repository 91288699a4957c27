package dynamic_test

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tutti-server/tutti/internal/goldentest"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/dynamic"
)

// TestScripts checks policies with scripts on a virtual clock: each file holds commands and, after a line of
// dashes, their output.
//
//	rules max=8 preferred=4,8 delay=5ms padded elements=64 instances=2 executing=3
//	enqueue id=a rows=2 length=7 shape=1
//	learn elements=10 padding=2 took=2ms times=20
//	step 3ms        moves the clock; then a free instance requests a batch
//
// shows: config.batching
func TestScripts(t *testing.T) {
	t.Parallel()
	goldentest.Each(t, "testdata/*.txt", runScript)
}

const divider = "----\n"

func runScript(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	commands, _, _ := strings.Cut(string(text), divider)
	s := &script{}
	var got strings.Builder
	for lines := bufio.NewScanner(strings.NewReader(commands)); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := s.do(&got, strings.Fields(line)); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	goldentest.Check(t, file, []byte(commands+divider+got.String()))
}

type script struct {
	now    time.Duration
	policy scheduler.Policy
	view   scheduler.View // but for its items
	ids    []string
	items  []scheduler.Item
}

func (s *script) do(out *strings.Builder, words []string) error {
	args := map[string]string{}
	for _, w := range words[1:] {
		k, v, _ := strings.Cut(w, "=")
		args[k] = v
	}
	switch words[0] {
	case "rules":
		return s.rules(args)
	case "enqueue":
		s.ids = append(s.ids, args["id"])
		s.items = append(s.items, scheduler.Item{
			Shape: uint64(number(args["shape"], 0)), Length: int32(number(args["length"], 0)),
			Rows: int32(number(args["rows"], 1)), Elements: number(args["elements"], number(args["rows"], 1)), Enqueued: int64(s.now),
		})
		return nil
	case "learn":
		took, err := time.ParseDuration(args["took"])
		for range number(args["times"], 1) {
			s.policy.(scheduler.Learner).Observe(scheduler.Executed{
				Rows: number(args["rows"], 1), Elements: number(args["elements"], number(args["rows"], 1)),
				Unpadded: number(args["elements"], 1), Padding: number(args["padding"], 0), Duration: took,
			})
		}
		return err
	case "step":
		d, err := time.ParseDuration(words[1])
		s.now += d
		s.ask(out)
		return err
	default:
		return fmt.Errorf("unknown command %q", words[0])
	}
}

func (s *script) rules(args map[string]string) error {
	r := dynamic.Rules{MaxBatch: int32(number(args["max"], 8)), MaxElements: number(args["elements"], 1<<40)}
	_, r.Padded = args["padded"]
	if p := args["preferred"]; p != "" {
		for w := range strings.SplitSeq(p, ",") {
			r.Preferred = append(r.Preferred, int32(number(w, 0)))
		}
	}
	var err error
	if d := args["delay"]; d != "" {
		r.Delay, err = time.ParseDuration(d)
	}
	s.policy = r.Policy()
	s.view.Instances = int32(number(args["instances"], 1))
	s.view.Executing = int32(number(args["executing"], 0))
	return err
}

// ask requests a batch for one free instance.
func (s *script) ask(out *strings.Builder) {
	if len(s.items) == 0 {
		fmt.Fprintf(out, "%v idle\n", s.now)
		return
	}
	s.view.Items, s.view.Queued = s.items, 0
	for _, it := range s.items {
		s.view.Queued += it.Rows
	}
	d := s.policy.Decide(int64(s.now), s.view, nil)
	if len(d.Take) == 0 {
		fmt.Fprintf(out, "%v wait %v\n", s.now, d.Wait)
		return
	}
	var ids []string
	for _, i := range slices.Backward(d.Take) {
		ids = append(ids, s.ids[i])
		s.ids = slices.Delete(s.ids, int(i), int(i)+1)
		s.items = slices.Delete(s.items, int(i), int(i)+1)
	}
	slices.Reverse(ids)
	fmt.Fprintf(out, "%v batch %s\n", s.now, strings.Join(ids, " "))
}

func number(s string, otherwise int64) int64 {
	if s == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}
