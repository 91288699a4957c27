package monitor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// Source takes samples of a server. It is not safe for concurrent use.
type Source struct {
	Client client.Manager
	// Dashboard returns the response of the dashboard's API to a path, for example "models". nil where there is no dashboard:
	// percentiles, queue lengths, CPU and GPU are then unknown.
	Dashboard func(ctx context.Context, path string) ([]byte, error)

	instances map[string]string // by model
}

// Sample is the state of a server at a time.
type Sample struct {
	At         time.Time
	Statistics []infer.Statistics
	Index      []infer.Entry
	Models     []inspect.ModelView // nil without a dashboard
	Server     *inspect.ServerView // nil without a dashboard
	Instances  map[string]string   // the instances of each model, for example "2 CPU"
}

const (
	// limit bounds the requests of a sample.
	limit = 10 * time.Second
	// mostConfigs is the number of configurations that one sample reads.
	mostConfigs = 50
)

// Sample takes a sample.
func (s *Source) Sample(ctx context.Context) (*Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	list, err := s.Client.Statistics(ctx, "")
	if err != nil {
		return nil, err
	}
	v := &Sample{At: time.Now(), Statistics: list}
	if v.Index, err = s.Client.Index(ctx); err != nil {
		v.Index = nil // the server may restrict it, and statistics name the models
	}
	if s.Dashboard != nil {
		s.dashboard(ctx, v)
	}
	s.readInstances(ctx, v)
	return v, nil
}

// dashboard adds what the dashboard knows. A server may have none.
func (s *Source) dashboard(ctx context.Context, v *Sample) {
	var models struct {
		Models []inspect.ModelView `json:"models"`
	}
	if text, err := s.Dashboard(ctx, "models"); err == nil && json.Unmarshal(text, &models) == nil {
		v.Models = models.Models
	}
	server := &inspect.ServerView{}
	if text, err := s.Dashboard(ctx, "server"); err == nil && json.Unmarshal(text, server) == nil {
		v.Server = server
	}
}

// readInstances reads the instance groups of models that are new.
func (s *Source) readInstances(ctx context.Context, v *Sample) {
	if s.instances == nil {
		s.instances = map[string]string{}
	}
	read := 0
	for i := range v.Statistics {
		name := v.Statistics[i].Name
		if _, known := s.instances[name]; known || read == mostConfigs {
			continue
		}
		read++
		cfg, err := s.Client.Config(ctx, name)
		if err != nil {
			if ctx.Err() == nil {
				s.instances[name] = "" // the server does not tell
			}
			continue
		}
		s.instances[name] = instancesOf(cfg)
	}
	v.Instances = s.instances
}

// instancesOf describes the instances of a configuration. For example, "2 CPU" or "1 GPU 0, 1 GPU 1".
func instancesOf(cfg *modelconfig.ModelConfig) string {
	var parts []string
	for _, g := range cfg.GetInstanceGroup() {
		n, kind := max(g.GetCount(), 1), strings.TrimPrefix(g.GetKind().String(), "KIND_")
		switch {
		case len(g.GetGpus()) > 0:
			for _, gpu := range g.GetGpus() {
				parts = append(parts, fmt.Sprintf("%d GPU %d", n, gpu))
			}
		case kind == "AUTO" || kind == "MODEL":
			parts = append(parts, strconv.Itoa(int(n)))
		default:
			parts = append(parts, fmt.Sprintf("%d %s", n, kind))
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
