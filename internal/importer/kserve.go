package importer

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/config"
)

// The fields of InferenceGraph.
var (
	resourceFields = []string{"apiVersion", "kind", "metadata", "spec", "status"}
	graphFields    = []string{
		"nodes", "resources", "affinity", "timeout", "minReplicas", "maxReplicas", "scaleTarget", "scaleMetric", "tolerations", "nodeSelector", "nodeName",
		"serviceAccountName", "routerTimeouts",
	}
	stepFields = []string{"name", "nodeName", "serviceName", "serviceUrl", "data", "mapPredictionsToInstances", "weight", "condition", "dependency"}
)

// document reads a document of any format.
func (b *builder) document(doc value) {
	var kind string
	for _, f := range b.fields(doc) {
		switch f.name {
		case "kind":
			kind = b.text(f.value)
		case "model_config_list", "pipeline_config_list":
			b.ovms(doc)
			return
		}
	}
	switch kind {
	case "InferenceGraph":
		b.kserve(doc)
	case "Pipeline":
		b.seldon(doc)
	case "InferenceService", "Model", "Server", "ServingRuntime", "ClusterServingRuntime":
		b.note(doc, "kind "+kind, "it stays on its cluster: the steps of the ensemble are remote models, which call it")
	case "":
		b.fail(doc, "the field 'kind' is missing, expected InferenceGraph or Pipeline")
	default:
		b.fail(doc, "found the kind '%s', expected InferenceGraph or Pipeline.%s", kind, config.DidYouMean(kind, []string{"InferenceGraph", "Pipeline"}))
	}
}

// graph is an InferenceGraph that is being read.
type graph struct {
	*builder

	e         *ensemble
	name      string
	namespace string
	nodes     map[string]value
	open      []string // nodes that are being read, from the root
}

// message is a request or response: its tensors by name, in order. Those of the graph's own request are known when a step needs them.
type message struct {
	links   []link
	request bool
	from    string
	when    *condition // of all its tensors
}

func (m *message) find(name string) *wire {
	for _, l := range m.links {
		if l.port == name {
			return l.wire
		}
	}
	return nil
}

// kserve reads an InferenceGraph.
func (b *builder) kserve(doc value) {
	b.result.Format = "KServe InferenceGraph"
	f := b.object(doc, resourceFields...)
	name, namespace := b.resourceName(doc, f["metadata"])
	spec := b.object(f["spec"], graphFields...)
	for _, key := range graphFields[1:] {
		if spec[key].n != nil {
			b.note(spec[key], key, "it is about the pods of KServe's router, which there is none of: ensembles run in the server")
		}
	}
	g := &graph{builder: b, name: name, namespace: namespace, nodes: map[string]value{}}
	for _, n := range b.fields(spec["nodes"]) {
		g.nodes[n.name] = n.value
	}
	if g.nodes["root"].n == nil {
		b.fail(doc, "the graph '%s' has no node 'root', from which it starts", name)
		return
	}
	g.build(name, "root", doc)
}

// resourceName returns the name and the namespace of a Kubernetes resource.
func (b *builder) resourceName(doc, metadata value) (name, namespace string) {
	namespace = "default"
	for _, f := range b.fields(metadata) {
		switch f.name {
		case "name":
			name = b.folderName(metadata, f.value, "name")
		case "namespace":
			namespace = b.text(f.value)
		}
	}
	if name == "" {
		b.fail(doc, "the field 'metadata.name' is missing")
	}
	return name, namespace
}

// build makes an ensemble of a node and those below it.
func (g *graph) build(name, node string, at value) {
	before := g.e
	g.e = &ensemble{name: name, comment: "From the InferenceGraph '" + g.name + "' of KServe.\n"}
	if response := g.node(at, node, &message{request: true, from: "the request"}, nil); response != nil {
		for _, l := range response.links {
			if !g.e.output(l.wire, l.port) {
				g.note(g.nodes[node], "output '"+l.port+"'", "the same tensor is an input or another output already")
			}
		}
	}
	g.add(g.nodes[node], g.e)
	sig := &signature{}
	for _, w := range g.e.in {
		sig.in = append(sig.in, port{w.name, w.port.dtype, w.port.dims, w.port.known})
	}
	for _, w := range g.e.out {
		sig.out = append(sig.out, port{w.name, w.port.dtype, w.port.dims, w.port.known})
	}
	if g.signatures == nil {
		g.signatures = map[string]*signature{}
	}
	g.signatures[name], g.e = sig, before
}

// node reads a node and returns its response; nil after an error. when is the condition under which it runs.
func (g *graph) node(at value, name string, request *message, when *condition) *message {
	v, there := g.nodes[name]
	if !there {
		var names []string
		for n := range g.nodes {
			names = append(names, n)
		}
		slices.Sort(names)
		g.fail(at, "there is no node '%s', expected one of %s.%s", name, strings.Join(names, ", "), config.DidYouMean(name, names))
		return nil
	}
	if slices.Contains(g.open, name) {
		g.fail(at, "the graph has a cycle: %s -> %s", strings.Join(g.open, " -> "), name)
		return nil
	}
	g.open = append(g.open, name)
	defer func() { g.open = g.open[:len(g.open)-1] }()
	f := g.object(v, "routerType", "steps")
	steps := g.list(f["steps"])
	if len(steps) == 0 {
		g.fail(v, "the node '%s' has no steps", name)
		return nil
	}
	kind := g.choice(f["routerType"], "", "Sequence", "Splitter", "Ensemble", "Switch")
	switch kind {
	case "Sequence":
		return g.sequence(steps, request, when)
	case "Ensemble":
		return g.parallel(steps, request, when)
	case "Switch":
		return g.choose(name, v, steps, request, when)
	case "Splitter":
		return g.split(name, v, steps, request, when)
	}
	if f["routerType"].n == nil {
		g.fail(v, "the field 'routerType' is missing")
	}
	return nil
}

// graphStep is a step of a node.
type graphStep struct {
	value

	fields map[string]value
	name   string // what it is called in names of tensors
}

func (g *graph) stepOf(v value) *graphStep {
	s := &graphStep{v, g.object(v, stepFields...), ""}
	targets := 0
	for _, key := range []string{"nodeName", "serviceName", "serviceUrl"} {
		if t := s.fields[key]; t.n != nil {
			targets++
			s.name = g.text(t)
		}
	}
	if targets != 1 {
		g.fail(v, "the step has %d of the fields serviceName, serviceUrl and nodeName, expected one", targets)
	}
	if n := g.text(s.fields["name"]); n != "" {
		s.name = n
	} else if u := s.fields["serviceUrl"]; u.n != nil {
		s.name, _, _ = g.service(u)
	}
	if d := g.choice(s.fields["dependency"], "", "Soft", "Hard"); d == "Soft" {
		g.note(s.fields["dependency"], "dependency Soft", "a step that fails fails the request, as Hard does")
	}
	if m := s.fields["mapPredictionsToInstances"]; m.n != nil {
		g.note(m, "mapPredictionsToInstances", "KServe v2 has tensors with names in place of predictions and instances: they are connected by name")
	}
	return s
}

// run runs the target of a step.
func (g *graph) run(s *graphStep, request *message, when *condition) *message {
	if n := s.fields["nodeName"]; n.n != nil {
		return g.node(n, g.text(n), request, when)
	}
	model := g.target(s)
	if model == "" {
		return nil
	}
	return g.call(s, model, request, when)
}

// call adds a step of a model and returns its response.
func (g *graph) call(s *graphStep, model string, request *message, when *condition) *message {
	sig := g.needed(s.value, model)
	if sig == nil {
		return nil
	}
	st := &step{model: model}
	for _, p := range sig.in {
		w := g.connect(s, request, p, sig)
		if w == nil {
			return nil
		}
		st.in = append(st.in, link{p.name, w})
	}
	st.when = when.of(request.when, st.in)
	response := &message{from: "the response of '" + s.name + "'", when: when}
	for _, p := range sig.out {
		w := g.e.wire(s.name+"_"+p.name, p, when)
		st.out, response.links = append(st.out, link{p.name, w}), append(response.links, link{p.name, w})
	}
	g.e.steps = append(g.e.steps, st)
	return response
}

// connect returns the tensor of a message for an input of a model.
func (g *graph) connect(s *graphStep, m *message, p port, sig *signature) *wire {
	if m.request {
		w, ok := g.e.input(p.name, p)
		if !ok {
			g.fail(s.value, "two models have the input '%s', once with the type %s and dims %v and once with %s and %v: one request cannot have both", p.name, w.port.dtype, w.port.dims, p.dtype, p.dims)
		}
		return w
	}
	w := m.find(p.name)
	if w == nil && len(sig.in) == 1 && len(m.links) == 1 {
		w = m.links[0].wire
		g.note(s.value, "input '"+p.name+"' of '"+s.name+"'", "it is connected with '%s', the only tensor of %s: names differ", m.links[0].port, m.from)
	}
	if w == nil {
		var names []string
		for _, l := range m.links {
			names = append(names, l.port)
		}
		g.fail(s.value, "the model '%s' has the input '%s', which %s does not have, found %s.%s", s.name, p.name, m.from, strings.Join(names, ", "), config.DidYouMean(p.name, names))
	}
	return w
}

// target adds the remote model of a step and returns its name.
func (g *graph) target(s *graphStep) string {
	var name, far, endpoint string
	if v := s.fields["serviceName"]; v.n != nil {
		name = g.folderName(s.value, v, "serviceName")
		endpoint = name + "-predictor." + g.namespace + ".svc.cluster.local:80"
	} else {
		name, far, endpoint = g.service(s.fields["serviceUrl"])
	}
	if g.Endpoint != "" {
		endpoint = g.Endpoint
	}
	if name == "" {
		return ""
	}
	g.remote(name, endpoint, far, g.signature(s.value, name))
	return name
}

// service reads the URL of a service. The model is that of the path, or the first part of the host.
func (g *graph) service(v value) (name, far, endpoint string) {
	text := g.text(v)
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		if before, _, ok := strings.Cut(text, "{"); ok { // a published example has a variable in the host
			g.fail(v, "the URL '%s' has a variable after '%s', expected the address of a service", text, before)
		} else {
			g.fail(v, "'%s' is no URL, expected for example http://service.namespace.svc/v2/models/MODEL/infer", text)
		}
		return "", "", ""
	}
	name, _, _ = strings.Cut(u.Hostname(), ".")
	parts := strings.Split(strings.Trim(u.Path, "/"), "/")
	if i := slices.Index(parts, "models"); i >= 0 && i+1 < len(parts) {
		far, _, _ = strings.Cut(parts[i+1], ":")
		name = far
	}
	port := u.Port()
	if port == "" {
		port = strconv.Itoa(map[string]int{"https": 443}[u.Scheme])
		if u.Scheme != "https" {
			port = "80"
		}
	}
	if len(parts) > 0 && parts[0] != "v2" {
		g.noteOnce(v, "serviceUrl "+text, "a remote model sends KServe v2 over gRPC to %s:%s: check that the service has it there", u.Hostname(), port)
	}
	return name, far, u.Hostname() + ":" + port
}

// noteOnce is note, but for what is noted already.
func (b *builder) noteOnce(v value, what, format string, args ...any) {
	if !slices.ContainsFunc(b.result.Notes, func(n Note) bool { return n.Place == v.path && n.What == what }) {
		b.note(v, what, format, args...)
	}
}

// parallel runs every step with the request. The response has the tensors of all.
func (g *graph) parallel(steps []value, request *message, when *condition) *message {
	all := &message{from: "the responses of several steps", when: when}
	for i, v := range steps {
		s := g.stepOf(v)
		response := g.run(s, request, when)
		if response == nil {
			continue
		}
		key := g.text(s.fields["name"])
		if key == "" {
			key = strconv.Itoa(i)
		}
		for _, l := range response.links {
			all.links = append(all.links, link{identifier(key + "_" + l.port), l.wire})
		}
		g.note(v, "response of step '"+key+"'", "KServe puts it in an object '%s' of the response: its tensors are outputs named '%s_NAME' here", key, identifier(key))
	}
	return all
}

// sequence runs steps one after another. A step whose condition does not hold ends it with the response so far.
func (g *graph) sequence(steps []value, request *message, when *condition) *message {
	var last *message
	var ends []*message // the responses where a condition may end the sequence
	for i, v := range steps {
		s, in := g.stepOf(v), request
		switch d := g.text(s.fields["data"]); {
		case d == "$response" && i > 0:
			in = last
		case d != "" && d != "$request":
			g.note(s.fields["data"], "data "+d, "KServe knows $request and $response: the step gets the request")
		}
		if c := s.fields["condition"]; c.n != nil && i > 0 {
			if expr := g.condition(c, last, false); expr != nil {
				ends, when = append(ends, last), both(when, expr)
			} else {
				g.note(c, "condition "+g.text(c), "it has no counterpart for tensors: the step runs for every request. Write it as the parameter step.%s.when", s.name)
			}
		}
		if last = g.run(s, in, when); last == nil {
			return nil
		}
	}
	if len(ends) == 0 {
		return last
	}
	slices.Reverse(ends)
	return g.firstOf(steps[0], append([]*message{last}, ends...), ends[len(ends)-1].when)
}

// firstOf joins the tensors that all messages have, each row from the first that has it.
func (g *graph) firstOf(at value, list []*message, when *condition) *message {
	joinedAll := &message{from: "the responses of several steps", when: when}
	for _, l := range list[0].links {
		from := []*wire{l.wire}
		for _, m := range list[1:] {
			if w := m.find(l.port); w != nil && w.port.same(l.wire.port) {
				from = append(from, w)
			}
		}
		if len(from) < len(list) {
			continue
		}
		to := g.e.wire(l.port, l.wire.port, when)
		g.e.joins = append(g.e.joins, joined{to, from})
		joinedAll.links = append(joinedAll.links, link{l.port, to})
	}
	for _, m := range list {
		for _, l := range m.links {
			if joinedAll.find(l.port) == nil {
				g.note(at, "output '"+l.port+"'", "it is left out: not every way through the graph has it with the same type and dims")
			}
		}
	}
	if len(joinedAll.links) == 0 {
		g.fail(at, "the ways through the graph have no tensor of the same name, type and dims in common, which its response could have")
	}
	return joinedAll
}
