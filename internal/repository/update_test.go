package repository_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
	"github.com/tutti-server/tutti/internal/repository"
	"github.com/tutti-server/tutti/proto/modelconfig"
	"github.com/tutti-server/tutti/scheduler/device"
)

// lifecycle counts the loads of a model of the spy and the instances that were created and closed.
type lifecycle struct{ loads, made, closed int }

func (s *spy) lifecycle(model string) lifecycle {
	return lifecycle{s.count("load " + model), s.count("instance " + model), s.count("close instance " + model)}
}

// TestUpdate changes the configuration of a serving model. It checks that a change of instances keeps the existing
// ones and creates only missing ones, and that a model whose new instances fail stays unchanged.
// shows: repository.instances
func TestUpdate(t *testing.T) {
	t.Parallel()
	const base = `backend: "spy" max_batch_size: 8 `
	limited := func(n string) string { return "rate_limiter { resources { name: 'R' count: " + n + " } }" }
	for _, way := range []string{"load", "poll", "override"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.more.Mode = map[bool]repository.Mode{true: repository.Polled, false: repository.Explicit}[way == "poll"]
			w.more.Limits = device.Settings{RateLimit: true, Limits: []device.Limit{{Name: "R", Count: 2, Device: device.EveryDevice}}}
			root := folder(t, spyModel("m", "")+ensemble("ens", step("m", "-1", "IN", "X")))
			r := w.repo(t, root)
			for _, tc := range []struct {
				name, config string
				want         lifecycle
				why          string
				later        bool // another version retires, for which the test does not wait
			}{
				{"more", "instance_group { count: 3 }", lifecycle{1, 3, 0}, "", false},
				{"fewer", "instance_group { count: 2 }", lifecycle{1, 3, 1}, "", false},
				{"called something else", "instance_group { name: 'x' } instance_group { name: 'y' }", lifecycle{1, 3, 1}, "", false},
				{"none of a group", "instance_group { count: 0 }", lifecycle{1, 3, 2}, "", false},
				{"limited", "instance_group { count: 2 " + limited("1") + " }", lifecycle{1, 5, 3}, "", false},
				{
					"limited to more than there is", "instance_group { count: 2 " + limited("3") + " }",
					lifecycle{1, 7, 5},
					`Resource count for "R" is limited to 2 which will prevent scheduling of one or more model instances, the minimum required count is 3`,
					false,
				},
				{"limited to less", "instance_group { count: 2 " + limited("2") + " }", lifecycle{1, 9, 7}, "", false},
				{"passive ones", "instance_group { count: 1 " + limited("2") + " } instance_group { count: 2 passive: true }", lifecycle{1, 11, 8}, "", false},
				{"other versions", "version_policy { all {} } instance_group { passive: true } instance_group { " + limited("2") + " }", lifecycle{1, 11, 9}, "", false},
				{"nothing", "version_policy { all {} } instance_group { passive: true } instance_group { " + limited("2") + " }  ", lifecycle{1, 11, 9}, "", false},
				{"all passive", "instance_group { passive: true }", lifecycle{1, 12, 11}, "", true},
				{"an active one", "instance_group { count: 2 }", lifecycle{1, 14, 12}, "", true},
				{"a batcher", "dynamic_batching {} instance_group { count: 2 }", lifecycle{2, 16, 14}, "", true},
				{"more behind the batcher", "dynamic_batching {} instance_group { count: 4 }", lifecycle{2, 18, 14}, "", false},
			} {
				why := alter(t, r, root, way, base+tc.config)
				if why != tc.why && (tc.why == "" || !strings.Contains(why, tc.why)) {
					t.Errorf("%s: got %q, want %q", tc.name, why, tc.why)
				}
				for (tc.later || way == "poll") && w.spy.lifecycle("m") != tc.want && t.Context().Err() == nil {
					runtime.Gosched() // the load does not wait for removed instances
				}
				if got := w.spy.lifecycle("m"); got != tc.want {
					t.Errorf("%s: got %+v, want %+v", tc.name, got, tc.want)
				}
				if tc.name == "all passive" {
					continue
				}
				for name, want := range map[string]float32{"m": 8, "ens": 8} {
					if got, err := send(t.Context(), r, w.request(name, 4)); err != nil || got != want {
						t.Errorf("%s: %s returned %v, %v", tc.name, name, got, err)
					}
				}
			}
			if err := r.Close(context.Background()); err != nil {
				t.Error(err)
			}
			if got := w.spy.lifecycle("m"); got.made != got.closed || w.spy.count("close model m") != got.loads {
				t.Errorf("at the end %+v", got)
			}
		})
	}
}

// alter changes the configuration of model m. It returns the error of the load, or, with polling, the reason in the
// index.
func alter(t *testing.T, r *repository.Repository, root, way, text string) string {
	t.Helper()
	var o infer.LoadOptions
	if way == "override" {
		cfg := &modelconfig.ModelConfig{}
		if err := prototext.Unmarshal([]byte(text), cfg); err != nil {
			t.Fatal(err)
		}
		js, err := config.JSON(cfg)
		if err != nil {
			t.Fatal(err)
		}
		o.Config = string(js)
	} else {
		write(t, root, "m/config.pbtxt", text)
	}
	if way == "poll" {
		poll(t, r, 2)
		for _, e := range r.Index(true) {
			if e.Name == "m" {
				return e.Reason
			}
		}
		return "m is not ready"
	}
	if err := r.Load(t.Context(), "m", o); err != nil {
		return err.Error()
	}
	return ""
}

// TestUpdateFails checks that the model keeps its instances when a new one cannot be created, and that the error
// names the state. The next load creates them.
func TestUpdateFails(t *testing.T) {
	t.Parallel()
	for name, why := range map[string]string{
		"uninstantiable": "no room for a second one",
		"shaky":          "making an instance of model 'shaky' failed: panic: a defect in the backend",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			root := folder(t, plain(name, "spy")+ensemble("ens", step(name, "-1", "IN", "X")))
			r := w.explicit(t, root, "ens")
			shows := func(instances int32) {
				t.Helper()
				if cfg, err := r.Config(name, 0); err != nil || cfg.GetInstanceGroup()[0].GetCount() != instances {
					t.Errorf("it shows %v, %v, want %d", cfg.GetInstanceGroup(), err, instances)
				}
			}
			write(t, root, name+"/config.pbtxt", `backend: "spy" max_batch_size: 8 instance_group { count: 3 }`)
			load(t, r, name, "load failed for model '"+name+"': version 1 is at READY state: "+why+";\n")
			wantIndex(t, r, "ens 1 READY\n"+name+" 1 READY "+why+"\n")
			shows(1)
			load(t, r, name, "")
			wantIndex(t, r, "ens 1 READY\n"+name+" 1 READY\n")
			shows(3)
			if got := w.spy.lifecycle(name); got != (lifecycle{1, 3, 0}) {
				t.Errorf("got %+v", got)
			}
			wantValues(t, w, r, map[string]float32{"ens": 2, name: 2})
		})
	}
}

// TestUpdateWhileHanging changes the instances of a model while a request hangs. It checks that new instances
// execute, that only a load which removes the busy instance waits for it, and that the instance is closed when its
// request ends.
func TestUpdateWhileHanging(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.spy.executing = make(chan chan struct{})
	root := folder(t, spyModel("m", "")+model("other", "double", ""))
	r := w.explicit(t, root, "m")
	var wg sync.WaitGroup
	submit := func(v float32) (leave chan struct{}) {
		wg.Go(func() {
			if got, err := send(context.Background(), r, w.request("m", v)); err != nil || got != 2*v {
				t.Errorf("got %v, %v", got, err)
			}
		})
		return <-w.spy.executing
	}
	hangs := submit(1)
	write(t, root, "m/config.pbtxt", `backend: "spy" max_batch_size: 8 instance_group { count: 2 }`)
	load(t, r, "m", "")
	close(submit(2)) // by the new instance
	write(t, root, "m/config.pbtxt", `backend: "spy" max_batch_size: 8 instance_group { rate_limiter { priority: 2 } }`)
	ctx, giveUp := context.WithCancel(t.Context())
	loaded := make(chan error)
	go func() { loaded <- r.Load(ctx, "m", infer.LoadOptions{}) }()
	for w.spy.lifecycle("m") != (lifecycle{1, 3, 1}) {
		runtime.Gosched()
	}
	load(t, r, "other", "") // does not wait
	close(submit(3))
	giveUp()
	if err := <-loaded; err != nil {
		t.Errorf("a load that was made, and whose client has gone: %v", err)
	}
	unload(t, r, "m", false)
	if got := index(r, false); got != "m 1 UNLOADING\nother 1 READY\n" {
		t.Errorf("unloaded during a request: %s", got)
	}
	close(hangs)
	wg.Wait()
	wantIndex(t, r, "m 1 UNAVAILABLE unloaded\nother 1 READY\n")
	if got := w.spy.lifecycle("m"); got != (lifecycle{1, 3, 3}) || w.spy.count("close model m") != 1 {
		t.Errorf("got %+v", got)
	}
}

// TestUpdateVersions checks that unchanged versions keep their instances when other versions are added, changed or
// removed.
func TestUpdateVersions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const base = `backend: "spy" max_batch_size: 8 version_policy { all {} } `
	root := folder(t, "-- m/config.pbtxt --\n"+base+"\n-- m/labels.txt --\nx\n-- m/1/x --\n-- m/2/x --\n"+ensemble("ens", step("m", "-1", "IN", "X")))
	r := w.explicit(t, root, "ens")
	for _, tc := range []struct {
		file, text string
		loads      int
		index      string
	}{
		{"m/3/x", "", 3, "m 1 READY\nm 2 READY\nm 3 READY\n"},
		{"m/2/x", "new", 4, "m 1 READY\nm 2 READY\nm 3 READY\n"},
		{"m/config.pbtxt", base + "instance_group { count: 2 }", 4, "m 1 READY\nm 2 READY\nm 3 READY\n"},
		{
			"m/config.pbtxt", strings.Replace(base, "all {}", "specific { versions: [ 1, 3 ] }", 1), 4,
			"m 1 READY\nm 2 UNAVAILABLE unloaded\nm 3 READY\n",
		},
		{"m/config.pbtxt", base, 5, "m 1 READY\nm 2 READY\nm 3 READY\n"},
		{"m/labels.txt", "other", 8, "m 1 READY\nm 2 READY\nm 3 READY\n"},
		{"m/config.pbtxt", base + " # nothing else", 8, "m 1 READY\nm 2 READY\nm 3 READY\n"},
		{"m/config.pbtxt", base + " dynamic_batching {}", 11, "m 1 READY\nm 2 READY\nm 3 READY\n"},
	} {
		write(t, root, tc.file, tc.text)
		load(t, r, "m", "")
		wantIndex(t, r, "ens 1 READY\n"+tc.index)
		if n := w.spy.count("load m"); n != tc.loads {
			t.Errorf("%s: %d versions were loaded, want %d", tc.file, n, tc.loads)
		}
		wantValues(t, w, r, map[string]float32{"ens": 2, "m": 2})
	}
}

// TestUpdateSequences changes the instances of a model during sequences, also in an ensemble. It checks that each
// sequence keeps its state and its instance to its end.
func TestUpdateSequences(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{"direct {}", "oldest { max_candidate_sequences: 4 }"} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			text := strings.NewReplacer("STRATEGY", strategy+" max_sequence_idle_microseconds: 3600000000", "SHOWN", "").Replace(adders)
			text += strings.ReplaceAll(strings.Split(text, "-- e/1/x --")[0], "-- a/", "-- b/")
			root := folder(t, text)
			config, err := os.ReadFile(filepath.Join(root, "a", "config.pbtxt"))
			if err != nil {
				t.Fatal(err)
			}
			r := w.explicit(t, root, "e")
			const sequences = 6
			sums := [sequences]int32{}
			for round, group := range []string{"count: 4", "count: 2", "rate_limiter { priority: 2 }", "count: 3"} {
				write(t, root, "a/config.pbtxt", string(config)+"instance_group { "+group+" }\n")
				for i := range sequences {
					first, last := round == i%3, round == 3
					if round < i%3 {
						continue
					}
					seq := infer.Sequence{ID: uint64(i + 1), Start: first, End: last}
					sums[i] += int32(i + round)
					if got := w.add(t, r, "a", "INPUT", seq, int32(i+round)); got != sums[i] {
						t.Errorf("round %d: sequence %d has the sum %d, want %d", round, i, got, sums[i])
					}
				}
				load(t, r, "a", "")
			}
		})
	}
}

// TestUpdateAtDevices moves instances between places. It checks that instances at an unchanged place stay, unless
// instances are added at a place that had none.
func TestUpdateAtDevices(t *testing.T) {
	cudatest.NotAtDevices(t, "it has devices of its own")
	t.Parallel()
	w := newWorld(t)
	w.more.Accelerators = accelerators(t, 0, 2)
	root := folder(t, spyModel("m", "instance_group { kind: KIND_GPU count: 2 } instance_group { kind: KIND_CPU }"))
	r := w.explicit(t, root, "m")
	for _, tc := range []struct {
		groups string
		want   lifecycle
	}{
		{"instance_group { kind: KIND_CPU count: 2 } instance_group { kind: KIND_GPU }", lifecycle{1, 6, 2}},
		{"instance_group { kind: KIND_GPU gpus: 0 count: 3 } instance_group { kind: KIND_GPU gpus: 2 } instance_group { kind: KIND_CPU }", lifecycle{1, 8, 3}},
		{"instance_group { kind: KIND_GPU gpus: 0 } instance_group { kind: KIND_CPU }", lifecycle{1, 10, 8}},
		{"instance_group { kind: KIND_CPU } instance_group { kind: KIND_GPU gpus: 0 }", lifecycle{1, 10, 8}},
	} {
		write(t, root, "m/config.pbtxt", `backend: "spy" max_batch_size: 8 `+tc.groups)
		load(t, r, "m", "")
		for w.spy.lifecycle("m") != tc.want && t.Context().Err() == nil {
			runtime.Gosched() // another version may retire
		}
		wantValues(t, w, r, map[string]float32{"m": 2})
	}
}
