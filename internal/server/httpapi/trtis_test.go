package httpapi_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/server/httpapi"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// index is a repository with a fixed list of versions.
type index struct {
	infer.Lifecycle
	entries []infer.Entry
}

func (i index) Index(bool) []infer.Entry { return i.entries }

const (
	trtisTwo = `model_status {
  key: "two"
  value {
    config {
      name: "two"
      input {
        name: "X"
        data_type: TYPE_FP32
        dims: -1
      }
      input {
        name: "Y"
        data_type: TYPE_FP32
        dims: -1
      }
      output {
        name: "X"
        data_type: TYPE_FP32
        dims: -1
      }
      output {
        name: "Y"
        data_type: TYPE_FP32
        dims: -1
      }
      backend: "echo"
    }
    version_status {
      key: 1
      value {
        ready_state: MODEL_READY
        model_execution_count: 2
        model_inference_count: 3
        last_inference_timestamp_milliseconds: 7
      }
    }
  }
}
`
	trtisBad = `model_status {
  key: "bad"
  value {
    version_status {
      key: 2
      value {
        ready_state: MODEL_LOADING
      }
    }
    version_status {
      key: 10
      value {
        ready_state: MODEL_UNAVAILABLE
        ready_state_reason {
          message: "it\'s \"broken\"\n\303\251"
        }
      }
    }
  }
}
`
	trtisNew = `model_status {
  key: "new"
  value {
  }
}
`
	trtisHead = "id: \"tutti\"\nversion: \"1.0.0\"\nuptime_ns: N\n"
	trtisTail = "ready_state: SERVER_READY\n"
)

// shows: legacy
func TestTRTISStatus(t *testing.T) {
	t.Parallel()
	s, _ := serve(t, func(set *httpapi.Settings) {
		set.Lifecycle = index{entries: []infer.Entry{
			{Name: "bad", Version: "10", State: infer.Unavailable, Reason: "it's \"broken\"\né"},
			{Name: "bad", Version: "2", State: infer.Loading},
			{Name: "new"},
			{Name: "two", Version: "1", State: infer.Ready},
		}}
	})
	uptime := regexp.MustCompile(`uptime_ns: [1-9][0-9]*`)
	id := regexp.MustCompile(`request_id: [1-9][0-9]*$`)
	const ok = `code: SUCCESS server_id: "tutti" request_id: N`
	for _, tt := range []struct {
		path string
		code int
		head string
		want string
	}{
		{"/api/status", 200, ok, trtisHead + trtisBad + trtisNew + trtisTwo + trtisTail},
		{"/api/status/two", 200, ok, trtisHead + trtisTwo + trtisTail},
		{"/api/status/two?format=text", 200, ok, trtisHead + trtisTwo + trtisTail},
		{"/api/status/nope", 400, `code: INVALID_ARG msg: "no status available for unknown model \'nope\'" server_id: "tutti" request_id: N`, ""},
		{"/api/status?format=binary", 400, `code: UNSUPPORTED msg: "status format \'binary\' is not supported, expected \'text\'" server_id: "tutti" request_id: N`, ""},
		{"/api/health/live", 200, ok, ""},
		{"/api/health/ready", 200, ok, ""},
	} {
		code, h, got := call(t, "GET", s.URL+tt.path, nil)
		got = uptime.ReplaceAllString(got, "uptime_ns: N")
		head := id.ReplaceAllString(h.Get("NV-Status"), "request_id: N")
		if diff := cmp.Diff(tt.want, got); diff != "" || code != tt.code || head != tt.head {
			t.Errorf("%s: status %d, want %d, NV-Status %s (-want +got):\n%s", tt.path, code, tt.code, head, diff)
		}
	}
	if code, _, _ := call(t, "POST", s.URL+"/api/status", nil); code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", code)
	}
}

// TestTRTISWithoutRepository lists the ready models.
func TestTRTISWithoutRepository(t *testing.T) {
	t.Parallel()
	s, e := serve(t, func(set *httpapi.Settings) {
		set.Catalog = configs{set.Catalog, &modelconfig.ModelConfig{
			Name: "m", MaxBatchSize: 4, MetricTags: map[string]string{"b": "2", "a": "1"},
			VersionPolicy: &modelconfig.ModelVersionPolicy{PolicyChoice: &modelconfig.ModelVersionPolicy_All_{All: &modelconfig.ModelVersionPolicy_All{}}},
			SchedulingChoice: &modelconfig.ModelConfig_SequenceBatching{SequenceBatching: &modelconfig.ModelSequenceBatching{
				StrategyChoice: &modelconfig.ModelSequenceBatching_Direct{Direct: &modelconfig.ModelSequenceBatching_StrategyDirect{MinimumSlotUtilization: 0.5}},
			}},
		}}
	})
	e.NotReady.Store(true)
	const config = `    config {
      name: "m"
      version_policy {
        all {
        }
      }
      max_batch_size: 4
      metric_tags {
        key: "a"
        value: "1"
      }
      metric_tags {
        key: "b"
        value: "2"
      }
      sequence_batching {
        direct {
          minimum_slot_utilization: 0.5
        }
      }
    }
`
	code, _, got := call(t, "GET", s.URL+"/api/status/echo", nil)
	want := trtisHead + "model_status {\n  key: \"echo\"\n  value {\n" + config + `    version_status {
      key: 1
      value {
        ready_state: MODEL_READY
        model_execution_count: 2
        model_inference_count: 3
        last_inference_timestamp_milliseconds: 7
      }
    }
  }
}
ready_state: SERVER_INITIALIZING
`
	got = regexp.MustCompile(`uptime_ns: [1-9][0-9]*`).ReplaceAllString(got, "uptime_ns: N")
	if diff := cmp.Diff(want, got); diff != "" || code != http.StatusOK {
		t.Errorf("status %d (-want +got):\n%s", code, diff)
	}
	if code, h, _ := call(t, "GET", s.URL+"/api/health/ready", nil); code != http.StatusBadRequest || h.Get("NV-Status") == "" {
		t.Errorf("ready: %d, NV-Status %q", code, h.Get("NV-Status"))
	}
}

// TestTRTISRestricted leaves out what the request could not call for elsewhere.
func TestTRTISRestricted(t *testing.T) {
	t.Parallel()
	s, _ := serve(t, func(set *httpapi.Settings) {
		set.Restricted = []infer.Restriction{{APIs: []infer.API{infer.APIModelConfig, infer.APIStatistics}, Key: "Pass", Value: "x"}}
	})
	for _, pass := range []string{"", "x"} {
		code, _, got := call(t, "GET", s.URL+"/api/status/two", nil, "Pass", pass)
		seen := strings.Contains(got, "config {") && strings.Contains(got, "model_execution_count")
		if code != http.StatusOK || seen != (pass == "x") || !strings.Contains(got, "MODEL_READY") {
			t.Errorf("pass %q: %d %s", pass, code, got)
		}
	}
}
