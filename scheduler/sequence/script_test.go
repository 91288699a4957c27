package sequence

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/goldentest"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/dynamic"
)

// TestScripts checks batchers with scripts on a virtual clock: each file holds commands and, after a line of
// dashes, their output.
//
//	rules oldest slots=2 instances=1 max=8 preferred=2 delay=5ms utilization=0.5 idle=1s ordered iterative queued=2 backlog=1
//	request a id=7 start end priority=1 timeout=5ms rows=1 shape=3
//	cancel a         its client disconnects
//	step 3ms         moves the clock and starts a batch on every free instance
//	finish 0         instance 0 is done; with again=a request a is to be executed once more
//	reap, sweep      the actions of the timer
//	add              adds an instance
//	remove 0         removes instance 0
//	drain            Drain is called
//	flush            no batch waits for more
//
// shows: config.sequences
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
	s := &script{names: map[*scheduler.Task]string{}, cancel: map[string]context.CancelFunc{}}
	for lines := bufio.NewScanner(strings.NewReader(commands)); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := s.do(strings.Fields(line)); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	goldentest.Check(t, file, []byte(commands+divider+s.out.String()))
}

type script struct {
	now    time.Duration
	book   *batcher
	names  map[*scheduler.Task]string
	cancel map[string]context.CancelFunc
	out    strings.Builder
}

func (s *script) do(words []string) error {
	args := map[string]string{}
	for _, w := range words[1:] {
		k, v, _ := strings.Cut(w, "=")
		args[k] = v
	}
	var dropped scheduler.TaskList
	switch words[0] {
	case "rules":
		return s.rules(args)
	case "request":
		s.request(words[1], args)
	case "cancel":
		s.cancel[words[1]]()
	case "step":
		d, err := time.ParseDuration(words[1])
		s.now += d
		s.begin(&dropped)
		s.print(&dropped)
		return err
	case "finish":
		s.finish(s.instance(words[1]), args["again"])
	case "add":
		s.book.add()
		s.book.spread()
	case "remove":
		s.book.remove(s.instance(words[1]), func() {})
	case "reap":
		s.book.reap(int64(s.now), &dropped)
		s.print(&dropped)
	case "sweep":
		s.book.sweep(int64(s.now), &dropped)
		s.print(&dropped)
	case "flush":
		s.book.flush = true
	case "drain":
		s.book.draining++
	default:
		return errors.New("unknown command")
	}
	return nil
}

func (s *script) rules(args map[string]string) error {
	_, oldest := args["oldest"]
	_, ordered := args["ordered"]
	_, iterative := args["iterative"]
	delay, err := time.ParseDuration(cmp.Or(args["delay"], "0s"))
	idle, err2 := time.ParseDuration(cmp.Or(args["idle"], "1s"))
	utilization, _ := strconv.ParseFloat(args["utilization"], 32)
	s.book = newBatcher(Rules{
		Oldest: oldest, Ordered: ordered, Iterative: iterative, Slots: int(num(args["slots"], 2)), Idle: idle,
		Utilization: float32(utilization), Queued: int(num(args["queued"], 0)), Backlog: int(num(args["backlog"], 0)),
	}, int(num(args["instances"], 1)))
	s.book.model, s.book.batchy = "m", true
	s.book.removed = func(l *instance) { fmt.Fprintf(&s.out, "%v instance %d is gone\n", s.now, l.number) }
	if oldest {
		r := dynamic.Rules{MaxBatch: int32(num(args["max"], 8)), Delay: delay, MaxElements: 1 << 40}
		if p := args["preferred"]; p != "" {
			r.Preferred = []int32{int32(num(p, 0))}
		}
		s.book.policy = r.Policy()
	} else {
		s.book.rules.Delay = delay
	}
	return errors.Join(err, err2)
}

// instance returns the instance of a number.
func (s *script) instance(number string) *instance {
	i := slices.IndexFunc(s.book.instances, func(l *instance) bool { return l.number == int(num(number, 0)) })
	return s.book.instances[i]
}

func (s *script) request(name string, args map[string]string) {
	has := func(k string) bool { _, ok := args[k]; return ok }
	ctx, cancel := context.WithCancel(context.Background())
	timeout, _ := time.ParseDuration(cmp.Or(args["timeout"], "0s"))
	w := &scheduler.Task{
		TaskRequest: scheduler.TaskRequest{
			Rows: int32(num(args["rows"], 1)), Ctx: ctx,
			In: []tensor.Tensor{{Buf: new(tensor.Buffer), Shape: tensor.Of(1, num(args["shape"], 1))}},
			Meta: &infer.Meta{
				Priority: uint64(num(args["priority"], 0)), Timeout: uint64(timeout.Microseconds()),
				Sequence: infer.Sequence{Start: has("start"), End: has("end")},
			},
		},
		TaskState: scheduler.TaskState{Enqueued: int64(s.now)},
	}
	if n, err := strconv.ParseUint(args["id"], 10, 64); err == nil {
		w.Meta.Sequence.ID = n
	} else {
		w.Meta.Sequence.Name = args["id"]
	}
	s.names[w], s.cancel[name] = name, cancel
	conflict, err := s.book.admit(w, int64(s.now))
	if err != nil {
		fmt.Fprintf(&s.out, "%v %s refused: %v\n", s.now, name, err)
	}
	if conflict {
		fmt.Fprintf(&s.out, "%v %s conflict\n", s.now, name)
	}
}

// begin starts a batch on every free instance.
func (s *script) begin(dropped *scheduler.TaskList) {
	for {
		l, wait := s.book.next(int64(s.now), dropped)
		if l == nil {
			if wait > 0 {
				fmt.Fprintf(&s.out, "%v wait %v\n", s.now, wait)
			}
			return
		}
		fmt.Fprintf(&s.out, "%v instance %d:", s.now, l.number)
		for _, sl := range l.batch {
			if sl == nil {
				s.out.WriteString(" -")
				continue
			}
			mark := ""
			if sl.start {
				mark = "*"
			}
			fmt.Fprintf(&s.out, " %s%s(%s)", s.names[sl.outer], mark, sl.seq.id)
		}
		s.out.WriteString("\n")
	}
}

func (s *script) finish(l *instance, again string) {
	for _, sl := range l.batch {
		if sl != nil {
			sl.again = again != "" && s.names[sl.outer] == again
		}
	}
	s.book.finish(l, int64(s.now))
}

// print writes the dropped requests and the state of the batcher.
func (s *script) print(dropped *scheduler.TaskList) {
	for w := dropped.Pop(); w != nil; w = dropped.Pop() {
		text := w.Err.Error()
		fmt.Fprintf(&s.out, "%v %s dropped: %s\n", s.now, s.names[w], cmp.Or(text, "cancelled"))
	}
	fmt.Fprintf(&s.out, "%v live %d idle %d backlog %d queued %d\n", s.now, len(s.book.live), s.book.idle.n, len(s.book.backlog.list), s.book.queued)
	for key := range slices.Values(slices.Collect(maps.Keys(s.book.live))) {
		if s.book.live[key].id != key {
			s.out.WriteString("a sequence is filed under another's id\n")
		}
	}
}

func num(s string, otherwise int64) int64 {
	if s == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}
