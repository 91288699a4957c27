package dynamic_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/goldentest"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/dynamic"
	"github.com/tutti-server/tutti/scheduler/queue"
	"github.com/tutti-server/tutti/scheduler/schedtest"
)

// TestQueueScripts checks whole schedulers with scripts on a virtual clock: each file holds commands and, after a
// line of dashes, the events.
//
//	queue max=4 preferred=2 delay=5ms default=2 instances=2 takes=10ms ordered hold=3
//	level size=2 timeout=20ms override delay    adds a priority level, before the first request;
//	                                            with rest=9 those up to level 9 that are not added
//	enqueue id=a,b rows=2 shape=3 priority=1 timeout=5ms deadline=30ms client=x background
//	leave client=x                              ends the context of its requests
//	flush                                       delayed batches execute, now and later
//	step 5ms                                    moves the clock
//
// The duration of a batch is takes times the extent of its shape.
//
// Times are multiples of 5 ms: a deadline may be noticed a millisecond late.
// shows: config.batching config.queue_policy
func TestQueueScripts(t *testing.T) {
	t.Parallel()
	goldentest.Each(t, "testdata/queue/*.txt", func(t *testing.T, file string) {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		commands, _, _ := strings.Cut(string(text), divider)
		var got string
		synctest.Test(t, func(t *testing.T) {
			<-time.After(time.Duration(1 - telemetry.Now())) // the bubble's clock begins before the program
			got = runQueue(t, commands)
		})
		goldentest.Check(t, file, []byte(commands+divider+got))
	})
}

// runQueue runs a script and returns its events.
func runQueue(t *testing.T, commands string) string {
	t.Helper()
	var out strings.Builder
	var s *virtual
	for lines := bufio.NewScanner(strings.NewReader(commands)); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.Fields(line)
		if words[0] == "queue" {
			s.finish(t, &out)
			s = newVirtual(t, words[1:])
			continue
		}
		if err := s.do(words); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		s.flush(&out)
	}
	s.finish(t, &out)
	return out.String()
}

// virtual is a scheduler on the clock of a test.
type virtual struct {
	*schedtest.Bench
	begin     time.Time
	rules     dynamic.Rules
	instances int
	hold      int
	takes     time.Duration
	sched     scheduler.Scheduler
	clients   map[string]client
	running   sync.WaitGroup
	queued    int

	mu     sync.Mutex
	events []string // guarded by mu
	ended  int      // guarded by mu
}

type client struct {
	ctx   context.Context
	leave context.CancelFunc
}

var _ scheduler.Completer = (*virtual)(nil)

func pairs(words []string) map[string]string {
	args := map[string]string{}
	for _, w := range words {
		k, v, _ := strings.Cut(w, "=")
		args[k] = v
	}
	return args
}

func duration(s string) time.Duration {
	if s == "" {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		panic(err)
	}
	return d
}

func newVirtual(t *testing.T, words []string) *virtual {
	t.Helper()
	args := pairs(words)
	s := &virtual{
		Bench: schedtest.NewBench(t, schedtest.Signature(int(number(args["max"], 8))), nil), begin: time.Now(), clients: map[string]client{},
		instances: int(number(args["instances"], 1)), hold: int(number(args["hold"], 0)), takes: duration(args["takes"]),
	}
	s.rules = dynamic.Rules{MaxBatch: int32(number(args["max"], 8)), Delay: duration(args["delay"]), MaxElements: 1 << 40}
	s.rules.Levels.Default = uint64(number(args["default"], 0))
	_, s.rules.Ordered = args["ordered"]
	for w := range strings.SplitSeq(args["preferred"], ",") {
		if w != "" {
			s.rules.Preferred = append(s.rules.Preferred, int32(number(w, 0)))
		}
	}
	return s
}

func (s *virtual) do(words []string) error {
	args := pairs(words[1:])
	switch words[0] {
	case "level":
		p := queue.Policy{MaxSize: int(number(args["size"], 0)), Timeout: duration(args["timeout"])}
		_, p.Override = args["override"]
		_, p.Delay = args["delay"]
		s.level(p, args)
	case "enqueue":
		s.enqueue(args)
	case "leave":
		s.clients[args["client"]].leave()
	case "flush":
		scheduler.Flush(s.sched)
	case "step":
		<-time.After(duration(words[1]))
	default:
		return fmt.Errorf("unknown command %q", words[0])
	}
	synctest.Wait()
	return nil
}

// level adds a priority level, from the highest on; rest is the policy of all others.
func (s *virtual) level(p queue.Policy, args map[string]string) {
	l := &s.rules.Levels
	if rest, ok := args["rest"]; ok {
		l.Policy, l.Count = p, uint64(number(rest, 0))
		return
	}
	if l.Policies == nil {
		l.Policies = map[uint64]queue.Policy{}
	}
	l.Count++
	l.Policies[l.Count], l.Default = p, max(l.Default, 1)
}

// enqueue sends requests as one list, on a goroutine with its own run loop.
func (s *virtual) enqueue(args map[string]string) {
	if s.sched == nil {
		s.sched = dynamic.New(dynamic.Settings{
			Runner: s.Runner, Workers: s.Workers, Hold: s.hold,
			Instances: slices.Repeat([]backends.Instance{schedtest.Model(s.execute)}, s.instances),
		}, s.rules)
	}
	ctx := context.Background()
	if name := args["client"]; name != "" {
		c, known := s.clients[name]
		if !known {
			c.ctx, c.leave = context.WithCancel(ctx)
			s.clients[name] = c
		}
		ctx = c.ctx
	}
	turn, rows, width := scheduler.NewRunLoop(s.Workers), number(args["rows"], 1), number(args["shape"], 1)
	for id := range strings.SplitSeq(args["id"], ",") {
		s.queued++
		meta := &infer.Meta{ID: id, Priority: uint64(number(args["priority"], 0)), Timeout: uint64(duration(args["timeout"]) / time.Microsecond)}
		_, meta.Background = args["background"]
		if d := duration(args["deadline"]); d > 0 {
			meta.Deadline = telemetry.Now() + int64(d)
		}
		turn.Stage(s.sched, &scheduler.Task{
			TaskRequest: scheduler.TaskRequest{To: s, Rows: int32(rows), Meta: meta, Ctx: ctx, In: []tensor.Tensor{s.Floats([]int64{rows, width}, make([]float32, rows*width)...)}},
			TaskResult:  scheduler.TaskResult{Out: make([]tensor.Tensor, 1)},
		})
	}
	s.running.Go(func() {
		turn.Dispatch()
		turn.RunUntil(func() bool { return false })
	})
}

// execute is the model. It sleeps for its duration.
func (s *virtual) execute(b *backends.Batch) error {
	words := []string{"run"}
	for i := range b.Requests {
		words = append(words, b.Requests[i].Meta.ID)
	}
	s.happens(words...)
	if s.takes > 0 {
		<-time.After(s.takes * time.Duration(b.In[0].Shape.Dim(1)))
	}
	return schedtest.Share(b)
}

// Complete implements scheduler.Completer.
func (s *virtual) Complete(list scheduler.TaskList, _ *scheduler.RunLoop) {
	words := []string{"done"}
	for w := list.Pop(); w != nil; w = list.Pop() {
		s.mu.Lock()
		s.ended++
		s.mu.Unlock()
		if w.Err != nil {
			s.happens("refused", w.Meta.ID+":", strings.TrimSpace(w.Err.Error()))
			continue
		}
		words = append(words, w.Meta.ID)
		tensor.ReleaseAll(w.Out)
	}
	if len(words) > 1 && s.takes > 0 {
		s.happens(words...)
	}
}

func (s *virtual) happens(words ...string) {
	at := time.Since(s.begin).Truncate(5 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, fmt.Sprintf("%5v %s\n", at, strings.Join(words, " ")))
}

// flush writes the events, sorted among those of the same time.
func (s *virtual) flush(out *strings.Builder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortStableFunc(s.events, func(a, b string) int {
		if a[:5] == b[:5] {
			return strings.Compare(a, b)
		}
		return 0
	})
	out.WriteString(strings.Join(s.events, ""))
	s.events = nil
}

// finish advances the clock until everything must have ended, and checks that it has.
func (s *virtual) finish(t *testing.T, out *strings.Builder) {
	t.Helper()
	if s == nil {
		return
	}
	<-time.After(time.Hour)
	synctest.Wait()
	s.flush(out)
	out.WriteString("\n")
	if s.ended != s.queued || s.Stats.Pending() != 0 {
		t.Errorf("%d of %d requests ended, %d are pending", s.ended, s.queued, s.Stats.Pending())
	}
	if s.sched != nil {
		if err := s.sched.Close(); err != nil {
			t.Error(err)
		}
	}
	s.running.Wait()
	s.Workers.Close()
}
