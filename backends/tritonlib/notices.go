package tritonlib

import (
	"context"
	"encoding/binary"
	"log/slog"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/internal/telemetry"
)

// Kinds of notices, equal to those in objects.c.
const (
	noticeLog = 1 + iota
	noticeFamily
	noticeFamilyEnd
	noticeMetric
	noticeMetricEnd
	noticeAdd
	noticeSet
	noticeObserve
)

const (
	noticeHead = 32 // the kind, two numbers and the length of the texts
	mostNotice = noticeHead + 32<<10
	// mostMetrics bounds the metrics and families of a process.
	mostMetrics = 10000
)

// notices handles the notices of a process: it logs lines and keeps the metrics that the library declares, until the process ends.
type notices struct {
	m        *model
	p        *process
	families map[uint64]*telemetry.CustomFamily
	metrics  map[uint64]*telemetry.CustomMetric
	warned   bool
}

func newNotices(m *model, p *process) *notices {
	return &notices{m: m, p: p, families: map[uint64]*telemetry.CustomFamily{}, metrics: map[uint64]*telemetry.CustomMetric{}}
}

// read handles notices until the process has closed its end.
func (n *notices) read(ctx context.Context) {
	defer close(n.p.told)
	b := make([]byte, mostNotice)
	for {
		size, err := n.p.notices.Read(b)
		if err != nil || size == 0 {
			break
		}
		if size < noticeHead {
			continue
		}
		number := func(i int) uint64 { return binary.NativeEndian.Uint64(b[i*8:]) }
		n.handle(ctx, number(0), number(1), number(2), strings.Split(strings.TrimSuffix(strings.ToValidUTF8(string(b[noticeHead:size]), "\uFFFD"), "\x00"), "\x00"))
	}
	for _, x := range n.metrics {
		x.Drop()
	}
	for _, f := range n.families {
		f.Drop()
	}
}

func (n *notices) handle(ctx context.Context, kind, a, b uint64, texts []string) {
	var err error
	switch kind {
	case noticeLog:
		n.log(ctx, a, b, texts)
	case noticeFamily:
		err = n.family(a, b, texts)
	case noticeFamilyEnd:
		if f := n.families[a]; f != nil {
			f.Drop()
			delete(n.families, a)
		}
	case noticeMetric:
		err = n.metric(a, b, texts)
	case noticeMetricEnd:
		if x := n.metrics[a]; x != nil {
			x.Drop()
			delete(n.metrics, a)
		}
	default:
		err = n.change(kind, a, math.Float64frombits(b))
	}
	if err != nil && !n.warned {
		n.warned = true
		n.m.log.WarnContext(ctx, "a metric of a backend library is not exported", slog.String("reason", err.Error()))
	}
}

// levels are the levels of Triton's API.
var levels = [...]slog.Level{slog.LevelInfo, slog.LevelWarn, slog.LevelError, slog.LevelDebug}

func (n *notices) log(ctx context.Context, level, line uint64, texts []string) {
	if len(texts) != 2 || level >= uint64(len(levels)) {
		return
	}
	//nolint:sloglint // the library's line
	n.m.log.Log(ctx, levels[level], strings.TrimSpace(texts[1]), slog.String("source", filepath.Base(texts[0])+":"+strconv.FormatUint(line, 10)))
}

func (n *notices) family(id, kind uint64, texts []string) error {
	if n.m.metrics == nil || len(texts) != 2 || kind > uint64(telemetry.CustomHistogram) || len(n.families) >= mostMetrics {
		return nil
	}
	f, err := n.m.metrics.Custom(texts[0], texts[1], telemetry.CustomKind(kind)) //nolint:gosec // checked
	if err == nil {
		n.families[id] = f
	}
	return err
}

// metric makes a metric. The texts are keys and values of labels, an empty one, and the buckets.
func (n *notices) metric(id, family uint64, texts []string) error {
	f := n.families[family]
	if f == nil || len(n.metrics) >= mostMetrics {
		return nil
	}
	labels := map[string]string{}
	for len(texts) > 1 && texts[0] != "" {
		labels[texts[0]] = texts[1]
		texts = texts[2:]
	}
	var buckets []float64
	for _, t := range texts[min(1, len(texts)):] {
		v, err := strconv.ParseFloat(t, 64)
		if err != nil {
			return err
		}
		buckets = append(buckets, v)
	}
	x, err := f.Metric(labels, buckets)
	if err == nil {
		n.metrics[id] = x
	}
	return err
}

func (n *notices) change(kind, id uint64, v float64) error {
	x := n.metrics[id]
	switch {
	case x == nil:
		return nil
	case kind == noticeAdd:
		return x.Add(v)
	case kind == noticeSet:
		return x.Set(v)
	case kind == noticeObserve:
		return x.Observe(v)
	}
	return nil
}
