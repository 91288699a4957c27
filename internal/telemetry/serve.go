package telemetry

import (
	"encoding/binary"
	"net/http"

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
	switch format.FormatType() {
	case expfmt.TypeTextPlain:
		h.text(w, process, false)
	case expfmt.TypeOpenMetrics:
		h.text(w, process, true)
	case expfmt.TypeProtoDelim:
		h.binary(w, process)
	default:
		h.other(w, format, process)
	}
}

// text responds in a text format.
func (h *handler) text(w http.ResponseWriter, process []*dto.MetricFamily, open bool) {
	p := h.pages.Get()
	p.begin(open)
	p.classic = true
	h.metrics.each(&p.arena, p.family)
	for _, f := range process {
		p.family(f)
	}
	p.end()
	_, _ = w.Write(p.out) // the client has disconnected
	h.pages.Put(p)
}

// binary responds in the protobuf format, in which the length precedes every family.
func (h *handler) binary(w http.ResponseWriter, process []*dto.MetricFamily) {
	p := h.pages.Get()
	p.out, p.classic = p.out[:0], false
	h.metrics.each(&p.arena, p.delimited)
	for _, f := range process {
		p.delimited(f)
	}
	_, _ = w.Write(p.out) // the client has disconnected
	h.pages.Put(p)
}

// delimited appends a family after its length. All strings are UTF-8, so that encoding cannot fail.
func (p *page) delimited(f *dto.MetricFamily) {
	p.out = binary.AppendUvarint(p.out, uint64(proto.Size(f)))
	p.out, _ = proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(p.out, f)
}

// other responds in a format that only people request. An error concerns the client's connection, after the status
// was sent.
func (h *handler) other(w http.ResponseWriter, format expfmt.Format, process []*dto.MetricFamily) {
	families, err := h.metrics.Gather()
	e := expfmt.NewEncoder(w, format)
	for _, f := range append(families, process...) {
		if err == nil {
			err = e.Encode(f)
		}
	}
}
