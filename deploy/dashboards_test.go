package deploy_test

import (
	"encoding/json"
	"testing"

	"github.com/tutti-server/tutti/internal/goldentest"
)

// panel is a graph of a dashboard: its title, its unit as Grafana names it, and its queries by legend.
type panel struct {
	title, unit string
	queries     [][2]string
}

type dashboard struct {
	file, title string
	// by is the name of the dashboard's variable, and of the metric whose label holds its values. Both are empty
	// for a dashboard without a variable.
	by, of string
	panels []panel
}

// quantile returns the query for a quantile of a histogram, grouped by further labels.
func quantile(q, family, match, by string) string {
	return "histogram_quantile(" + q + ", sum by (" + by + "le) (rate(" + family + "_bucket{" + match + "}[$__rate_interval])))"
}

func perSecond(by, series string) string {
	return "sum by (" + by + ") (rate(" + series + "[$__rate_interval]))"
}

func dashboards() []dashboard {
	return []dashboard{overview(), perModel(), perEnsemble(), devices()}
}

func overview() dashboard {
	return dashboard{file: "overview", title: "Tutti: overview", panels: []panel{
		{"Requests", "reqps", [][2]string{{"{{model}}", perSecond("model", "nv_inference_request_success")}}},
		{"Failures", "reqps", [][2]string{{"{{model}} {{reason}}", perSecond("model, reason", "nv_inference_request_failure")}}},
		{"Refusals", "reqps", [][2]string{{"{{model}} {{reason}}", perSecond("model, reason", "ensemble_refusals_total")}}},
		{"Latency, p50", "s", [][2]string{{"{{model}}", quantile("0.5", "ensemble_latency_seconds", `phase="total"`, "model, ")}}},
		{"Latency, p99", "s", [][2]string{{"{{model}}", quantile("0.99", "ensemble_latency_seconds", `phase="total"`, "model, ")}}},
		{"Waiting requests", "short", [][2]string{{"{{model}}", "sum by (model) (nv_inference_pending_request_count)"}}},
		{"Mean batch", "short", [][2]string{{"{{model}}", perSecond("model", "nv_inference_count") + " / " + perSecond("model", "nv_inference_exec_count")}}},
		{"Processors and memory", "percentunit", [][2]string{
			{"processors {{instance}}", "nv_cpu_utilization"},
			{"memory {{instance}}", "nv_cpu_memory_used_bytes / nv_cpu_memory_total_bytes"},
		}},
		{"Response cache", "percentunit", [][2]string{{"hits {{instance}}", "nv_cache_num_hits / nv_cache_num_lookups"}, {"used {{instance}}", "nv_cache_util"}}},
		{"Failed loads", "short", [][2]string{{"{{instance}}", "increase(ensemble_model_load_failures_total[$__rate_interval])"}}},
	}}
}

func perModel() dashboard {
	const match = `model="$model"`
	return dashboard{file: "model", title: "Tutti: model", by: "model", of: "nv_inference_count", panels: []panel{
		{"Requests and failures", "reqps", [][2]string{
			{"answered", perSecond("model", "nv_inference_request_success{"+match+"}")},
			{"{{reason}}", perSecond("reason", "nv_inference_request_failure{"+match+"}")},
		}},
		{"Latency", "s", [][2]string{
			{"p50", quantile("0.5", "ensemble_latency_seconds", match+`, phase="total"`, "")},
			{"p90", quantile("0.9", "ensemble_latency_seconds", match+`, phase="total"`, "")},
			{"p99", quantile("0.99", "ensemble_latency_seconds", match+`, phase="total"`, "")},
		}},
		{"Phases, p99", "s", [][2]string{{"{{phase}}", quantile("0.99", "ensemble_latency_seconds", match, "phase, ")}}},
		{"Queue against compute", "none", [][2]string{{"ratio", perSecond("model", "nv_inference_queue_duration_us{"+match+"}") + " / " + perSecond("model", "nv_inference_compute_infer_duration_us{"+match+"}")}}},
		{"Queue depth", "short", [][2]string{
			{"now", "sum(nv_inference_pending_request_count{" + match + "})"},
			{"p99 of those who come", quantile("0.99", "ensemble_queue_depth", match, "")},
		}},
		{"Batch size", "short", [][2]string{{"p50", quantile("0.5", "ensemble_batch_size", match, "")}, {"p99", quantile("0.99", "ensemble_batch_size", match, "")}}},
		{"Padding", "percentunit", [][2]string{
			{"share", perSecond("model", "ensemble_batch_padding_elements_total{"+match+"}") + " / (" +
				perSecond("model", "ensemble_batch_padding_elements_total{"+match+"}") + " + " + perSecond("model", "ensemble_batch_elements_total{"+match+"}") + ")"},
			{"p90 of batches", quantile("0.9", "ensemble_batch_padding_ratio", match, "")},
		}},
		{"Deadlines: time left", "s", [][2]string{{"p1", quantile("0.01", "ensemble_deadline_slack_seconds", match, "")}, {"p50", quantile("0.5", "ensemble_deadline_slack_seconds", match, "")}}},
		{"Refusals", "reqps", [][2]string{{"{{reason}}", perSecond("reason", "ensemble_refusals_total{"+match+"}")}}},
		{"Copies", "Bps", [][2]string{{"{{tensor}} {{from}} to {{to}}", perSecond("tensor, from, to", "ensemble_copied_bytes_total{"+match+"}")}}},
	}}
}

func perEnsemble() dashboard {
	const match = `model="$model"`
	return dashboard{file: "ensemble", title: "Tutti: ensemble", by: "model", of: "ensemble_edge_bytes_total", panels: []panel{
		{"Requests", "reqps", [][2]string{{"answered", perSecond("model", "nv_inference_request_success{"+match+"}")}}},
		{"Latency", "s", [][2]string{
			{"p50", quantile("0.5", "ensemble_latency_seconds", match+`, phase="total"`, "")},
			{"p99", quantile("0.99", "ensemble_latency_seconds", match+`, phase="total"`, "")},
		}},
		{"Nodes, p99", "s", [][2]string{{"{{node}}", quantile("0.99", "ensemble_node_latency_seconds", match+`, phase="total"`, "node, ")}}},
		{"Nodes, mean wait", "s", [][2]string{{"{{node}}", perSecond("node", "ensemble_node_latency_seconds_sum{"+match+`, phase="queue"}`) + " / " + perSecond("node", "ensemble_node_latency_seconds_count{"+match+`, phase="queue"}`)}}},
		{"Nodes, share of the time", "percentunit", [][2]string{{"{{node}}", perSecond("node", "ensemble_node_latency_seconds_sum{"+match+`, phase="total"}`) + " / ignoring (node) group_left sum(rate(ensemble_latency_seconds_sum{" + match + `, phase="total"}[$__rate_interval]))`}}},
		{"Edges", "Bps", [][2]string{{"{{tensor}} on {{place}}", perSecond("tensor, place", "ensemble_edge_bytes_total{"+match+"}")}}},
		{"Copies", "Bps", [][2]string{{"{{tensor}} {{reason}}", perSecond("tensor, reason", "ensemble_copied_bytes_total{"+match+"}")}}},
		{"Deadlines: time left", "s", [][2]string{{"p1", quantile("0.01", "ensemble_deadline_slack_seconds", match, "")}, {"p50", quantile("0.5", "ensemble_deadline_slack_seconds", match, "")}}},
		{"Deadlines: goodput", "reqps", [][2]string{{"{{outcome}}", perSecond("outcome", "ensemble_deadline_requests_total{"+match+"}")}}},
		{"Deadlines: share in time", "percentunit", [][2]string{{"in time", "sum(rate(ensemble_deadline_requests_total{" + match + `, outcome="in_time"}[$__rate_interval])) / sum(rate(ensemble_deadline_requests_total{` + match + "}[$__rate_interval]))"}}},
		{"Deadlines: time taken over predicted", "none", [][2]string{{"p50", quantile("0.5", "ensemble_deadline_prediction_ratio", match, "")}, {"p95", quantile("0.95", "ensemble_deadline_prediction_ratio", match, "")}}},
		{"Refusals on arrival", "reqps", [][2]string{{"{{reason}}", perSecond("reason", "ensemble_refusals_total{"+match+"}")}}},
	}}
}

func devices() dashboard {
	const match = `{gpu_uuid="$gpu_uuid"}`
	return dashboard{file: "device", title: "Tutti: device", by: "gpu_uuid", of: "nv_gpu_utilization", panels: []panel{
		{"Utilization", "percentunit", [][2]string{{"busy", "nv_gpu_utilization" + match}}},
		{"Memory", "bytes", [][2]string{{"used", "nv_gpu_memory_used_bytes" + match}, {"total", "nv_gpu_memory_total_bytes" + match}}},
		{"Power", "watt", [][2]string{{"usage", "nv_gpu_power_usage" + match}, {"limit", "nv_gpu_power_limit" + match}}},
		{"Energy", "watt", [][2]string{{"mean power", "rate(nv_energy_consumption" + match + "[$__rate_interval])"}}},
		{"Pinned memory", "bytes", [][2]string{{"used", "nv_pinned_memory_pool_used_bytes"}, {"total", "nv_pinned_memory_pool_total_bytes"}}},
		{"Copies of all models", "Bps", [][2]string{{"{{from}} to {{to}}", perSecond("from, to", "ensemble_copied_bytes_total")}}},
	}}
}

// object is a JSON object of a dashboard.
type object = map[string]any

// write returns a dashboard in Grafana's import format.
func (d *dashboard) write(t *testing.T) []byte {
	t.Helper()
	source := object{"type": "prometheus", "uid": "${source}"}
	variables := []object{{"name": "source", "type": "datasource", "query": "prometheus"}}
	if d.by != "" {
		query := "label_values(" + d.of + ", " + d.by + ")"
		variables = append(variables, object{
			"name": d.by, "type": "query", "datasource": source, "refresh": 2, "definition": query, "query": object{"query": query, "refId": "values"},
		})
	}
	const width, height = 12, 8
	var list []object
	for i := range d.panels {
		p := &d.panels[i]
		var targets []object
		for k, q := range p.queries {
			targets = append(targets, object{"refId": string(rune('A' + k)), "legendFormat": q[0], "expr": q[1], "exemplar": p.unit == "s"})
		}
		list = append(list, object{
			"id": i + 1, "type": "timeseries", "title": p.title, "datasource": source, "targets": targets,
			"gridPos":     object{"x": i % 2 * width, "y": i / 2 * height, "w": width, "h": height},
			"fieldConfig": object{"defaults": object{"unit": p.unit}, "overrides": []object{}},
		})
	}
	text, err := json.MarshalIndent(object{
		"uid": "tutti-" + d.file, "title": d.title, "tags": []string{"tutti"}, "schemaVersion": 39, "refresh": "15s", "editable": true,
		"time": object{"from": "now-1h", "to": "now"}, "templating": object{"list": variables}, "panels": list,
	}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(text, '\n')
}

// TestDashboards checks that the committed dashboards are up to date.
func TestDashboards(t *testing.T) {
	t.Parallel()
	for _, d := range dashboards() {
		goldentest.Check(t, "grafana/dashboards/"+d.file+".json", d.write(t))
	}
}
