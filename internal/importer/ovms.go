package importer

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/config"
)

// ovms reads the configuration file of OpenVINO Model Server.
func (b *builder) ovms(doc value) {
	b.result.Format = "OpenVINO Model Server"
	top := b.object(doc, "model_config_list", "pipeline_config_list", "custom_node_library_config_list", "custom_loader_config_list", "mediapipe_config_list", "monitoring")
	for _, m := range b.list(top["model_config_list"]) {
		f := b.object(m, "config")
		if f["config"].n == nil {
			b.fail(m, "the field 'config' is missing")
			continue
		}
		b.ovmsModel(f["config"])
	}
	b.ovmsRest(top)
	libraries := map[string]bool{}
	for _, l := range b.list(top["custom_node_library_config_list"]) {
		libraries[b.name(l, b.object(l, "name", "base_path")["name"], "name")] = true
	}
	for _, p := range b.list(top["pipeline_config_list"]) {
		b.ovmsPipeline(p, libraries)
	}
}

// ovmsRest notes the parts of the file that are no models and pipelines.
func (b *builder) ovmsRest(top map[string]value) {
	for key, reason := range map[string]string{
		"custom_loader_config_list": "models are loaded from folders and buckets: see --model-repository",
		"mediapipe_config_list":     "graphs of MediaPipe have calculators in C++: write the graph as an ensemble",
		"monitoring":                "metrics are always on: see --allow-metrics",
	} {
		if v := top[key]; v.n != nil && len(v.n.Content) > 0 {
			b.note(v, key, "%s", reason)
		}
	}
}

var modelFields = []string{
	"name", "base_path", "batch_size", "shape", "layout", "nireq", "target_device", "model_version_policy", "plugin_config", "allow_cache", "custom_loader_options",
	"graph_path", "subconfig",
}

// ovmsModel reads a model.
func (b *builder) ovmsModel(v value) {
	f := b.object(v, modelFields...)
	name := b.folderName(v, f["name"], "name")
	if slices.ContainsFunc(b.models, func(m *model) bool { return m.name == name && name != "" }) {
		b.fail(f["name"], "there are two models '%s'", name)
		return
	}
	for key, reason := range map[string]string{
		"batch_size":            "models keep the shapes of their files: set max_batch_size and dynamic_batching to batch requests",
		"shape":                 "models keep the shapes of their files: convert the model with the shape that is needed",
		"layout":                "tensors are passed as they are: transpose in the model or in a step",
		"allow_cache":           "compiled models are not cached",
		"custom_loader_options": "models are loaded from folders and buckets",
		"graph_path":            "graphs of MediaPipe have calculators in C++: write the graph as an ensemble",
		"subconfig":             "graphs of MediaPipe have calculators in C++: write the graph as an ensemble",
	} {
		if f[key].n != nil {
			b.note(f[key], key+" of model '"+name+"'", "%s", reason)
		}
	}
	m := &model{name: name, sig: b.signature(v, name)}
	if b.models = append(b.models, m); b.Endpoint != "" {
		m.remote = b.Endpoint
		b.onServer(f)
		return
	}
	b.ovmsFiles(f, m)
	b.ovmsSettings(f, m)
}

// onServer notes the settings that stay on the server that keeps the models.
func (b *builder) onServer(f map[string]value) {
	for _, key := range []string{"nireq", "target_device", "model_version_policy", "plugin_config"} {
		if f[key].n != nil {
			b.note(f[key], key, "it stays a setting of the server at %s, which keeps the model", b.Endpoint)
		}
	}
}

// ovmsSettings reads the settings that Tutti has as well.
func (b *builder) ovmsSettings(f map[string]value, m *model) {
	var t strings.Builder
	t.WriteString(m.configText)
	if n := b.integer(f["nireq"], 0); n > 0 {
		fmt.Fprintf(&t, "instance_group { kind: KIND_CPU count: %d }\n", n)
	}
	if d := b.text(f["target_device"]); d != "" && d != "CPU" {
		t.WriteString(parameter("TARGET_DEVICE", d))
	}
	t.WriteString(b.versionPolicy(f["model_version_policy"]))
	for _, p := range b.fields(f["plugin_config"]) {
		if !slices.Contains(pluginKeys, p.name) {
			b.note(p.value, "plugin_config "+p.name+" of model '"+m.name+"'", "the backend has no such setting%s", config.DidYouMean(p.name, pluginKeys))
			continue
		}
		t.WriteString(parameter(p.name, b.text(p.value)))
	}
	m.configText = t.String()
}

// pluginKeys are the settings that the backend passes on to OpenVINO.
var pluginKeys = []string{
	"CACHE_DIR", "CACHE_MODE", "COMPILATION_NUM_THREADS", "CPU_DENORMALS_OPTIMIZATION", "CPU_SPARSE_WEIGHTS_DECOMPRESSION_RATE", "DEVICE_ID",
	"DYNAMIC_QUANTIZATION_GROUP_SIZE", "ENABLE_CPU_PINNING", "ENABLE_CPU_RESERVATION", "ENABLE_HYPER_THREADING", "ENABLE_MMAP", "EXECUTION_MODE_HINT",
	"INFERENCE_NUM_THREADS", "INFERENCE_PRECISION_HINT", "KV_CACHE_PRECISION", "MODEL_DISTRIBUTION_POLICY", "MODEL_PRIORITY", "NUM_STREAMS", "PERFORMANCE_HINT",
	"PERFORMANCE_HINT_NUM_REQUESTS", "SCHEDULING_CORE_TYPE",
}

// versionPolicy returns the versions that are served.
func (b *builder) versionPolicy(v value) string {
	f := b.object(v, "all", "latest", "specific")
	switch {
	case f["all"].n != nil:
		return "version_policy { all { } }\n"
	case f["latest"].n != nil:
		return fmt.Sprintf("version_policy { latest { num_versions: %d } }\n", b.integer(b.object(f["latest"], "num_versions")["num_versions"], 1))
	case f["specific"].n != nil:
		var all []string
		for _, n := range b.list(b.object(f["specific"], "versions")["versions"]) {
			all = append(all, strconv.FormatInt(b.integer(n, 1), 10))
		}
		return "version_policy { specific { versions: [ " + strings.Join(all, ", ") + " ] } }\n"
	}
	return ""
}

// ovmsFiles finds the files of a model.
func (b *builder) ovmsFiles(f map[string]value, m *model) {
	path := b.text(f["base_path"])
	dir := b.locate(path)
	if dir == "" {
		b.fail(cmp.Or(f["base_path"], f["name"]), "the files of the model '%s' are not on this machine: there is no folder '%s', and none of its name beside the file. "+
			"Expected them there, or --remote HOST:PORT of the server that keeps the model", m.name, path)
		return
	}
	file := modelFile(dir)
	if file == "" {
		b.fail(f["base_path"], "the folder '%s' has no version with a model, expected a file .xml, .onnx, .pdmodel, .tflite or saved_model.pb in a folder such as '%s'", dir, filepath.Join(dir, "1"))
		return
	}
	m.from = dir
	m.configText = "backend: \"openvino\"\n"
	if file != "model.xml" {
		m.configText += fmt.Sprintf("default_model_filename: %s\n", quoted(file))
	}
}

// locate returns the folder of a model: the path itself, or the end of it beside the file. It returns "" for none.
func (b *builder) locate(path string) string {
	if path == "" {
		return ""
	}
	beside := filepath.Dir(b.File)
	candidates := []string{path}
	if !filepath.IsAbs(path) {
		candidates = nil
	}
	for rest, more := strings.Trim(path, "/"), true; more; _, rest, more = strings.Cut(rest, "/") {
		candidates = append(candidates, filepath.Join(beside, rest))
	}
	for _, dir := range candidates {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			return dir
		}
	}
	return ""
}

// modelFile returns the name of the file of a model in a folder with versions; "" for none.
func modelFile(dir string) string {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if !isVersion(e.Name()) {
			continue
		}
		files, _ := os.ReadDir(filepath.Join(dir, e.Name()))
		for _, f := range files {
			switch filepath.Ext(f.Name()) {
			case ".xml", ".onnx", ".pdmodel", ".tflite":
				return f.Name()
			case ".pb":
				if f.Name() == "saved_model.pb" {
					return "."
				}
			}
		}
	}
	return ""
}

// ovmsNode is a node of a pipeline.
type ovmsNode struct {
	value

	name    string
	fields  map[string]value
	step    *step
	outputs map[string]*wire // by alias
	sig     *signature
	sources []*ovmsNode // per input of the step
	within  []*ovmsNode // the demultiplexers that it runs inside, outermost first
	placed  bool        // within is known
}

// ovmsPipeline reads a pipeline.
func (b *builder) ovmsPipeline(v value, libraries map[string]bool) {
	f := b.object(v, "name", "inputs", "outputs", "nodes", "demultiply_count")
	e := &ensemble{name: b.folderName(v, f["name"], "name"), comment: "From the pipeline of an OpenVINO Model Server.\n"}
	for _, key := range []string{"inputs", "outputs", "nodes"} {
		if f[key].n == nil {
			b.fail(v, "the field '%s' is missing", key)
		}
	}
	inputs := map[string]*wire{}
	for _, in := range b.list(f["inputs"]) {
		name := b.name(in, in, "inputs")
		inputs[name], _ = e.input(name, port{name: name})
	}
	nodes, byName := b.ovmsNodes(f["nodes"], e, inputs)
	if reason := b.leftOut(f, nodes, libraries); reason != "" {
		b.note(v, "pipeline '"+e.name+"'", "%s", reason)
		return
	}
	for _, n := range nodes {
		for _, in := range b.list(n.fields["inputs"]) {
			b.ovmsInput(n, in, byName)
		}
	}
	for _, n := range nodes {
		b.fans(e, n)
	}
	for _, out := range b.list(f["outputs"]) {
		for _, o := range b.fields(out) {
			w, from := b.ovmsSource(o.value, byName)
			if from != nil {
				w = e.gather(w, len(from.fan()))
			}
			if w != nil && !e.output(w, o.name) {
				b.note(o.value, "output '"+o.name+"'", "the same tensor is an input or another output of the pipeline already: it is one tensor in an ensemble")
			}
		}
	}
	b.add(v, e)
}

// leftOut returns the reason that a pipeline cannot be an ensemble; "" for none.
func (b *builder) leftOut(f map[string]value, nodes []*ovmsNode, libraries map[string]bool) string {
	for _, n := range nodes {
		if b.text(n.fields["type"]) == "custom" {
			library := b.text(n.fields["library_name"])
			if !libraries[library] {
				b.fail(cmp.Or(n.fields["library_name"], n.value), "there is no library '%s' in custom_node_library_config_list.%s", library, config.DidYouMean(library, slices.Sorted(maps.Keys(libraries))))
			}
			return fmt.Sprintf("it is left out: the node '%s' runs the library '%s' in C++. Write it as a step in Python or Go, and the pipeline as an ensemble", n.name, library)
		}
	}
	if f["demultiply_count"].n != nil {
		return "it is left out: the pipeline has demultiply_count. Models with max_batch_size divide a request by rows without it"
	}
	return ""
}

var nodeFields = []string{"name", "model_name", "library_name", "type", "version", "inputs", "outputs", "params", "demultiply_count", "gather_from_node"}

// ovmsNodes reads the nodes and adds the steps of those that are models.
func (b *builder) ovmsNodes(v value, e *ensemble, inputs map[string]*wire) ([]*ovmsNode, map[string]*ovmsNode) {
	var nodes []*ovmsNode
	byName := map[string]*ovmsNode{"request": {name: "request", outputs: inputs}}
	for _, item := range b.list(v) {
		n := &ovmsNode{value: item, fields: b.object(item, nodeFields...), outputs: map[string]*wire{}}
		n.name = b.name(item, n.fields["name"], "name")
		if byName[n.name] != nil {
			b.fail(n.fields["name"], "there are two nodes '%s'", n.name)
			continue
		}
		byName[n.name], nodes = n, append(nodes, n)
		if b.choice(n.fields["type"], "", "DL model", "custom") != "DL model" {
			if n.fields["type"].n == nil {
				b.fail(item, "the field 'type' is missing")
			}
			continue
		}
		n.step = &step{model: b.ovmsModelOf(item, n.fields["model_name"]), version: b.integer(n.fields["version"], 0)}
		n.sig = b.signatures[n.step.model]
		if count := n.fields["demultiply_count"]; count.n != nil {
			n.step.demux = true
			if items := b.integer(count, 0); items > 0 {
				b.noteOnce(count, "demultiply_count of node '"+n.name+"'", "the number of items is that of the tensor, and %d is not checked", items)
			}
		}
		e.steps = append(e.steps, n.step)
		b.ovmsOutputs(e, n)
	}
	return nodes, byName
}

// ovmsModelOf returns the name of a node's model, which must be in the file.
func (b *builder) ovmsModelOf(node, v value) string {
	name := b.name(node, v, "model_name")
	var names []string
	for _, m := range b.models {
		names = append(names, m.name)
	}
	if name != "" && !slices.Contains(names, name) {
		b.fail(v, "there is no model '%s' in model_config_list.%s", name, config.DidYouMean(name, names))
	}
	return name
}

// ovmsOutputs reads the outputs of a node.
func (b *builder) ovmsOutputs(e *ensemble, n *ovmsNode) {
	written := map[string]*wire{}
	for _, o := range b.list(n.fields["outputs"]) {
		f := b.object(o, "data_item", "alias")
		item, alias := b.name(o, f["data_item"], "data_item"), b.name(o, f["alias"], "alias")
		w := written[item]
		if w == nil {
			p := port{name: item}
			if n.sig != nil {
				known, ok := find(n.sig.out, item)
				if p = known; !ok {
					b.fail(f["data_item"], "the model '%s' has no output '%s'.%s", n.step.model, item, config.DidYouMean(item, names(n.sig.out)))
				}
			}
			w = e.wire(n.name+"_"+alias, p, nil)
			written[item] = w
			n.step.out = append(n.step.out, link{item, w})
		}
		if n.outputs[alias] != nil {
			b.fail(f["alias"], "the node '%s' has two outputs '%s'", n.name, alias)
		}
		n.outputs[alias] = w
	}
}

func names(list []port) (names []string) {
	for _, p := range list {
		names = append(names, p.name)
	}
	return names
}

// ovmsInput reads an item of a node's inputs, an object of one tensor and its source.
func (b *builder) ovmsInput(n *ovmsNode, v value, byName map[string]*ovmsNode) {
	list := b.fields(v)
	if len(list) != 1 {
		b.fail(v, "found %d fields, expected one: the input of the model and where it comes from", len(list))
		return
	}
	w, from := b.ovmsSource(list[0].value, byName)
	if w == nil {
		return
	}
	if n.sig != nil {
		p, ok := find(n.sig.in, list[0].name)
		if !ok {
			b.fail(list[0].value, "the model '%s' has no input '%s'.%s", n.step.model, list[0].name, config.DidYouMean(list[0].name, names(n.sig.in)))
		}
		if !w.port.known {
			w.port = p
		}
	}
	if slices.ContainsFunc(n.step.in, func(l link) bool { return l.port == list[0].name }) {
		b.fail(list[0].value, "the node '%s' has two inputs '%s'", n.name, list[0].name)
		return
	}
	n.step.in, n.sources = append(n.step.in, link{list[0].name, w}), append(n.sources, from)
}

// ovmsSource returns the tensor that a node_name and data_item name.
func (b *builder) ovmsSource(v value, byName map[string]*ovmsNode) (*wire, *ovmsNode) {
	f := b.object(v, "node_name", "data_item")
	node, item := b.name(v, f["node_name"], "node_name"), b.name(v, f["data_item"], "data_item")
	n := byName[node]
	if n == nil {
		b.fail(cmp.Or(f["node_name"], v), "there is no node '%s'.%s", node, config.DidYouMean(node, slices.Sorted(maps.Keys(byName))))
		return nil, nil
	}
	w := n.outputs[item]
	if w == nil {
		b.fail(cmp.Or(f["data_item"], v), "the node '%s' has no output '%s', expected one of %s.%s", node, item, strings.Join(slices.Sorted(maps.Keys(n.outputs)), ", "), config.DidYouMean(item, slices.Sorted(maps.Keys(n.outputs))))
		return nil, nil
	}
	return w, n
}
