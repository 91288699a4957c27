package telemetry

import (
	"bytes"
	"encoding/binary"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/internal/pool"
)

// handler serves scrapes.
type handler struct {
	metrics *Metrics
	process prometheus.Gatherer // nil for none
	pages   pool.Of[page]
}

// page is the memory of a response.
type page struct {
	writer
	arena
}

// Handler serves the metrics of x and of process, which may be nil and must not have families of the same names.
// The Accept header selects the Prometheus text format, OpenMetrics, which has exemplars, or the protobuf format,
// which also has native histograms. Responses are not compressed: that would cost more than all the rest.
func Handler(x *Metrics, process prometheus.Gatherer) http.Handler {
	return &handler{metrics: x, process: process}
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	format := expfmt.NegotiateAccept(r.Header, expfmt.DefaultOpenMetricsAcceptedFormats()...)
	var process []*dto.MetricFamily
	if h.process != nil {
		var err error
		if process, err = h.process.Gather(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	w.Header().Set("Content-Type", string(format))
	kind := format.FormatType()
	p := h.pages.Get()
	add := p.family
	switch kind {
	case expfmt.TypeTextPlain, expfmt.TypeOpenMetrics:
	case expfmt.TypeProtoDelim:
		add = p.delimited
	default:
		// Only people request these formats. An error concerns the client's connection, after the status was sent.
		families, err := h.metrics.Gather()
		e := expfmt.NewEncoder(w, format)
		for _, f := range append(families, process...) {
			if err == nil {
				err = e.Encode(f)
			}
		}
		return
	}
	p.begin(kind == expfmt.TypeOpenMetrics)
	p.classic = kind != expfmt.TypeProtoDelim
	h.metrics.each(&p.arena, add)
	for _, f := range process {
		add(f)
	}
	if p.open {
		p.add("# EOF\n")
	}
	_, _ = w.Write(p.out) // the client has disconnected
	h.pages.Put(p)
}

// delimited appends a family after its length. All strings are UTF-8, so that encoding cannot fail.
func (p *page) delimited(f *dto.MetricFamily) {
	p.out = binary.AppendUvarint(p.out, uint64(proto.Size(f)))
	p.out, _ = proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(p.out, f)
}

// writer writes families in the Prometheus text format or in OpenMetrics.
type writer struct {
	out  []byte
	open bool // OpenMetrics
	head []byte
	// bounds are the bounds of the last histogram and their texts: the next histogram usually has the same.
	bounds []*float64
	texts  []string
}

func (w *writer) begin(open bool) {
	if w.open != open {
		w.bounds, w.texts = nil, nil // the two formats write them differently
	}
	w.out, w.open = w.out[:0], open
}

func (w *writer) add(list ...string) {
	for _, s := range list {
		w.out = append(w.out, s...)
	}
}

const totalSuffix = "_total"

// family writes one family. OpenMetrics requires that samples of counters end in _total: a counter with another
// name has the type unknown there, so that its name is unchanged.
func (w *writer) family(f *dto.MetricFamily) {
	name, title := f.GetName(), f.GetName()
	kind := strings.ToLower(f.GetType().String())
	switch {
	case w.open && f.GetType() == dto.MetricType_UNTYPED:
		kind = "unknown"
	case w.open && f.GetType() == dto.MetricType_COUNTER:
		var ends bool
		if title, ends = strings.CutSuffix(name, totalSuffix); !ends {
			kind = "unknown"
		}
	}
	w.add("# HELP ", title, " ")
	w.escape(f.GetHelp(), w.open)
	w.add("\n# TYPE ", title, " ", kind, "\n")
	for _, m := range f.GetMetric() {
		w.metric(name, m)
	}
}

func (w *writer) metric(name string, m *dto.Metric) {
	switch {
	case m.GetHistogram() != nil:
		w.histogram(name, m)
	case m.GetSummary() != nil:
		w.summary(name, m)
	case m.GetCounter() != nil:
		w.sample(name, "", m, m.GetCounter().GetValue())
	case m.GetGauge() != nil:
		w.sample(name, "", m, m.GetGauge().GetValue())
	case m.GetUntyped() != nil:
		w.sample(name, "", m, m.GetUntyped().GetValue())
	}
}

func (w *writer) sample(name, suffix string, m *dto.Metric, v float64) {
	w.add(name, suffix)
	if len(m.GetLabel()) > 0 {
		w.add("{")
		w.labels(m.GetLabel())
		w.add("}")
	}
	w.add(" ")
	w.number(v)
	w.add("\n")
}

func (w *writer) labels(list []*dto.LabelPair) {
	for i, l := range list {
		if i > 0 {
			w.add(",")
		}
		w.add(l.GetName(), `="`)
		w.escape(l.GetValue(), true)
		w.add(`"`)
	}
}

// start stores the beginning of the lines of a metric with one more label.
func (w *writer) start(name, suffix string, m *dto.Metric, label string) {
	from := len(w.out)
	w.add(name, suffix, "{")
	w.labels(m.GetLabel())
	if len(m.GetLabel()) > 0 {
		w.add(",")
	}
	w.add(label, `="`)
	w.head = append(w.head[:0], w.out[from:]...)
	w.out = w.out[:from]
}

func (w *writer) histogram(name string, m *dto.Metric) {
	h, last := m.GetHistogram(), 0.0
	w.start(name, "_bucket", m, "le")
	for i, b := range h.GetBucket() {
		w.bucket(w.boundText(i, b.UpperBound), b.GetCumulativeCount(), b.GetExemplar())
		last = b.GetUpperBound()
	}
	if !math.IsInf(last, 1) {
		w.bucket("+Inf", h.GetSampleCount(), nil)
	}
	w.sample(name, "_sum", m, h.GetSampleSum())
	w.sample(name, "_count", m, float64(h.GetSampleCount()))
}

func (w *writer) boundText(i int, bound *float64) string {
	if i < len(w.bounds) && w.bounds[i] == bound {
		return w.texts[i]
	}
	from := len(w.out)
	w.bound(*bound)
	text := string(w.out[from:])
	w.out = w.out[:from]
	w.bounds, w.texts = append(w.bounds[:min(i, len(w.bounds))], bound), append(w.texts[:min(i, len(w.texts))], text)
	return text
}

func (w *writer) bucket(bound string, n uint64, e *dto.Exemplar) {
	w.out = append(w.out, w.head...)
	w.add(bound, `"} `)
	w.out = strconv.AppendUint(w.out, n, 10)
	if w.open && e != nil {
		w.add(" # {")
		w.labels(e.GetLabel())
		w.add("} ")
		w.number(e.GetValue())
		if at := e.GetTimestamp(); at != nil {
			w.add(" ")
			w.out = strconv.AppendFloat(w.out, float64(at.AsTime().UnixMilli())/1000, 'f', 3, 64)
		}
	}
	w.add("\n")
}

func (w *writer) summary(name string, m *dto.Metric) {
	s := m.GetSummary()
	w.start(name, "", m, "quantile")
	for _, q := range s.GetQuantile() {
		w.out = append(w.out, w.head...)
		w.bound(q.GetQuantile())
		w.add(`"} `)
		w.number(q.GetValue())
		w.add("\n")
	}
	w.sample(name, "_sum", m, s.GetSampleSum())
	w.sample(name, "_count", m, float64(s.GetSampleCount()))
}

// bound writes the value of a bucket or quantile, with a decimal point in OpenMetrics.
func (w *writer) bound(v float64) {
	from := len(w.out)
	w.number(v)
	if w.open && v == math.Trunc(v) && !math.IsInf(v, 0) && !bytes.ContainsAny(w.out[from:], "e.") {
		w.add(".0")
	}
}

const wholeLimit = 1e15 // the value from which whole numbers are written with an exponent

func (w *writer) number(v float64) {
	switch {
	case v >= 0 && v < wholeLimit && v == math.Trunc(v):
		w.out = strconv.AppendUint(w.out, uint64(v), 10)
	case math.IsInf(v, 1):
		w.add("+Inf")
	case math.IsInf(v, -1):
		w.add("-Inf")
	default:
		w.out = strconv.AppendFloat(w.out, v, 'g', -1, 64)
	}
}

// escape writes text. Quotes are escaped in values, and in OpenMetrics everywhere.
func (w *writer) escape(s string, quotes bool) {
	if !strings.ContainsAny(s, "\\\n\"") {
		w.add(s)
		return
	}
	for i := range len(s) {
		switch c := s[i]; {
		case c == '\n':
			w.add(`\n`)
		case c == '\\':
			w.add(`\\`)
		case c == '"' && quotes:
			w.add(`\"`)
		default:
			w.out = append(w.out, c)
		}
	}
}
