package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// The parameters that make a model reachable by the routes of other servers. A value is a list of KEY=VALUE, separated by blanks; what it
// leaves out is inferred from the tensors of the model where only one is possible. For example:
//
//	parameters { key: "api.embeddings" value { string_value: "text=TEXT dense=embedding tokens=token_count max_tokens=256" } }
const (
	EmbeddingsParam  = "api.embeddings"
	RerankParam      = "api.rerank"
	CompletionsParam = "api.completions"
	TokenizeParam    = "api.tokenize"
)

var apiParams = []string{CompletionsParam, EmbeddingsParam, RerankParam, TokenizeParam}

// IsAPIParam reports whether a parameter is one of these, so that no backend reads it.
func IsAPIParam(key string) bool { return slices.Contains(apiParams, key) }

// API says which tensors of a model carry what the requests and responses of a route have. Tensors that the model lacks are empty. Each row
// of a batch is one text.
type API struct {
	Param string // the parameter, for example "api.embeddings"

	// Text, Query and IDs are inputs: a text, the query of a rerank request, and token ids.
	Text, Query, IDs string
	// Dense, Sparse and MultiVector are outputs of embeddings. Sparse is one output with a weight per index, or two: the indices
	// and their weights.
	Dense, MultiVector string
	Sparse             []string
	// Tokens is the output with the number of tokens of a text before truncation: one number, or a mask of the tokens, which are counted.
	Tokens string
	// Mask is the output that is 0 where a row of MultiVector, or of token ids, is padding.
	Mask string
	// Score is the output of rerank.
	Score string
	// Completion, Finish and PromptTokens are outputs of completions: the text of a response, why it is the last one, and the
	// tokens of the prompt. Tokens are then those of the response.
	Completion, Finish, PromptTokens string
	// TokenIDs, Special and Offsets are outputs of tokenize.
	TokenIDs, Special, Offsets string

	// Names are further names by which requests may name the model. For example, "BAAI/bge-small-en-v1.5".
	Names []string
	// MaxTokens is the largest number of tokens of a text, 0 for any.
	MaxTokens int
	// Truncate reports that longer texts are cut, where a request does not say what to do with them; otherwise they are refused.
	Truncate bool
	// Dimensions are those to which embeddings may be cut; AnyDimension permits all.
	Dimensions   []int
	AnyDimension bool
	// Sigmoid reports that scores are logits, of which clients get the sigmoid.
	Sigmoid bool
	// Default marks the model for requests that name none.
	Default bool
}

// APIs are those of a model, nil for the ones it does not have.
type APIs struct{ Embeddings, Rerank, Completions, Tokenize *API }

// apiPort is a key of a value that names a tensor.
type apiPort struct {
	key    string
	field  func(*API) *string
	output bool
	text   bool  // BYTES; otherwise numbers of one of types
	one    bool  // one element per row
	infer  bool  // the only possible tensor where the value names none
	rank   int   // the rank of its dims, 0 for any
	kind   kinds // of numbers
}

// kinds are data types of a sort.
type kinds uint8

const (
	integers kinds = iota + 1
	floats
)

func (k kinds) has(d tensor.DType) bool {
	if k == floats {
		return d == tensor.FP32
	}
	return d == tensor.Int64 || d == tensor.Int32
}

func (p *apiPort) accepts(d tensor.DType) bool {
	if p.text {
		return d == tensor.Bytes
	}
	return p.kind.has(d)
}

// expected names the data types of the port.
func (p *apiPort) expected() string {
	switch {
	case p.text:
		return "TYPE_STRING"
	case p.kind == floats:
		return "TYPE_FP32"
	default:
		return "TYPE_INT64 or TYPE_INT32"
	}
}

var (
	textPort   = apiPort{key: "text", field: func(a *API) *string { return &a.Text }, text: true, one: true, infer: true}
	tokensPort = apiPort{key: "tokens", field: func(a *API) *string { return &a.Tokens }, output: true, kind: integers}
	maskPort   = apiPort{key: "mask", field: func(a *API) *string { return &a.Mask }, output: true, kind: integers}
)

// apiPorts lists the tensors of each parameter.
var apiPorts = map[string][]apiPort{
	EmbeddingsParam: {
		textPort,
		{key: "ids", field: func(a *API) *string { return &a.IDs }, kind: integers, rank: 1},
		{key: "dense", field: func(a *API) *string { return &a.Dense }, output: true, kind: floats, infer: true, rank: 1},
		{key: "multi_vector", field: func(a *API) *string { return &a.MultiVector }, output: true, kind: floats, rank: 2},
		tokensPort, maskPort,
	},
	RerankParam: {
		{key: "query", field: func(a *API) *string { return &a.Query }, text: true, one: true, infer: true},
		textPort,
		{key: "score", field: func(a *API) *string { return &a.Score }, output: true, kind: floats, infer: true, one: true},
		tokensPort,
	},
	CompletionsParam: {
		textPort,
		{key: "completion", field: func(a *API) *string { return &a.Completion }, output: true, text: true, one: true, infer: true},
		{key: "finish_reason", field: func(a *API) *string { return &a.Finish }, output: true, text: true, one: true},
		{key: "prompt_tokens", field: func(a *API) *string { return &a.PromptTokens }, output: true, kind: integers},
		tokensPort,
	},
	TokenizeParam: {
		textPort,
		{key: "ids", field: func(a *API) *string { return &a.TokenIDs }, output: true, kind: integers, infer: true, rank: 1},
		maskPort,
		{key: "special", field: func(a *API) *string { return &a.Special }, output: true, kind: integers, rank: 1},
		{key: "offsets", field: func(a *API) *string { return &a.Offsets }, output: true, kind: integers, rank: 2},
	},
}

// apiSettings lists the keys of each parameter that name no tensor.
var apiSettings = map[string][]string{
	EmbeddingsParam:  {"sparse", "max_tokens", "too_long", "dimensions", "names", "default"},
	RerankParam:      {"max_tokens", "scores", "names", "default"},
	CompletionsParam: {"names", "default"},
	TokenizeParam:    {"default"},
}

// apiKeys returns the keys of a parameter.
func apiKeys(param string) (keys []string) {
	for _, p := range apiPorts[param] {
		keys = append(keys, p.key)
	}
	return append(keys, apiSettings[param]...)
}

// apiReader reads the parameters of one configuration.
type apiReader struct {
	problems

	api *API
}

func (r *apiReader) fail(format string, args ...any) {
	r.add(BadParam, "parameters."+r.api.Param, "parameter '%s' of model '%s' %s", r.api.Param, r.cfg.GetName(), fmt.Sprintf(format, args...))
	r.fix("correct the value: docs/openai.md lists the keys of every parameter")
}

// APIsOf returns the APIs of a complete configuration, and what is wrong with their parameters.
func APIsOf(cfg *modelconfig.ModelConfig) (APIs, []Diagnostic) {
	return readAPIs(cfg, SignatureOf(cfg))
}

// CheckAPIs returns the first error in the parameters of a complete configuration that make the model reachable by the routes of other
// servers, or nil.
func CheckAPIs(cfg *modelconfig.ModelConfig) error {
	_, list := APIsOf(cfg)
	return FirstError(list)
}

// readAPIs reads the parameters. Without a signature it reads no names of tensors.
func readAPIs(cfg *modelconfig.ModelConfig, sig *Signature) (out APIs, list []Diagnostic) {
	for _, param := range apiParams {
		p, set := cfg.GetParameters()[param]
		if !set {
			continue
		}
		r := &apiReader{problems: problems{cfg: cfg}, api: &API{Param: param}}
		r.words(p.GetStringValue())
		if sig != nil && len(r.list) == 0 {
			r.tensors(sig)
		}
		list = append(list, r.list...)
		if len(r.list) > 0 {
			continue
		}
		switch param {
		case EmbeddingsParam:
			out.Embeddings = r.api
		case RerankParam:
			out.Rerank = r.api
		case CompletionsParam:
			out.Completions = r.api
		case TokenizeParam:
			out.Tokenize = r.api
		}
	}
	return out, list
}

// apis reports values that cannot be read. The tensors that they name are checked once the model is loaded.
func (l *problems) apis() {
	_, list := readAPIs(l.cfg, nil)
	l.list = append(l.list, list...)
}

// words reads the words of a value.
func (r *apiReader) words(value string) {
	seen := map[string]bool{}
	for word := range strings.FieldsSeq(value) {
		key, text, found := strings.Cut(word, "=")
		switch keys := apiKeys(r.api.Param); {
		case !slices.Contains(keys, key):
			r.fail("has the key %s, expected one of %s.%s", quoteShort(key), strings.Join(keys, ", "), DidYouMean(key, keys))
		case seen[key]:
			r.fail("has the key '%s' twice, expected it once", key)
		case key == "default" && (!found || text == "true"):
			r.api.Default = true
		case key == "default" && text == "false":
		case text == "":
			r.fail("has the key '%s' without a value, expected %s=VALUE", key, key)
		default:
			r.word(key, text)
		}
		seen[key] = true
	}
}

func (r *apiReader) word(key, text string) {
	ports := apiPorts[r.api.Param]
	if i := slices.IndexFunc(ports, func(p apiPort) bool { return p.key == key }); i >= 0 {
		*ports[i].field(r.api) = text
		return
	}
	switch key {
	case "sparse":
		if r.api.Sparse = strings.Split(text, ","); len(r.api.Sparse) > 2 || slices.Contains(r.api.Sparse, "") {
			r.fail("has sparse=%s, expected an output of weights, or INDICES,WEIGHTS", text)
		}
	case "names":
		if r.api.Names = strings.Split(text, ","); slices.Contains(r.api.Names, "") {
			r.fail("has names=%s, expected names that are separated by commas", quoteShort(text))
		}
	case "max_tokens":
		r.api.MaxTokens = r.number(key, text)
	case "too_long":
		if r.api.Truncate = text == "truncate"; !r.api.Truncate && text != "refuse" {
			r.fail("has too_long=%s, expected refuse (the default) or truncate", quoteShort(text))
		}
	case "dimensions":
		if r.api.AnyDimension = text == "any"; r.api.AnyDimension {
			return
		}
		for part := range strings.SplitSeq(text, ",") {
			r.api.Dimensions = append(r.api.Dimensions, r.number(key, part))
		}
	case "scores":
		if r.api.Sigmoid = text == "logits"; !r.api.Sigmoid && text != "final" {
			r.fail("has scores=%s, expected final (the default) or logits, of which clients get the sigmoid", text)
		}
	case "default":
		r.fail("has default=%s, expected true or false", text)
	}
}

func (r *apiReader) number(key, text string) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		r.fail("has %s=%s, expected a number of at least 1", key, quoteShort(text))
	}
	return n
}

// tensors checks the named tensors and infers the others.
func (r *apiReader) tensors(sig *Signature) {
	a := r.api
	if sig.Decoupled && a.Param != CompletionsParam {
		r.fail("is set for a decoupled model, expected one with a response per request")
		return
	}
	for _, p := range apiPorts[a.Param] {
		name := p.field(a)
		skip := p.key == "text" && a.IDs != "" || p.key == "dense" && (len(a.Sparse) > 0 || a.MultiVector != "")
		if *name == "" && p.infer && !skip {
			*name = r.only(&p, sig)
		}
		if *name != "" {
			r.tensor(&p, *name, sig)
		}
	}
	for i, name := range a.Sparse {
		p := apiPort{key: "sparse", output: true, kind: floats, rank: 1}
		if i == 0 && len(a.Sparse) == 2 {
			p.kind = integers
		}
		r.tensor(&p, name, sig)
	}
	if (a.Dimensions != nil || a.AnyDimension) && a.Dense == "" {
		r.fail("has dimensions and no dense output, expected dense=OUTPUT")
	}
	if a.MaxTokens > 0 && a.Tokens == "" {
		r.fail("has max_tokens and no count of tokens, expected tokens=OUTPUT, an output of the number of tokens before truncation")
	}
	if a.Truncate && a.MaxTokens == 0 {
		r.fail("has too_long=truncate and no max_tokens, expected max_tokens=N, the number that the model cuts texts to")
	}
	if a.Text != "" && a.IDs != "" {
		r.fail("has text and ids, expected one of them: a request cannot leave out an input")
	}
	if a.Param != CompletionsParam { // whose other inputs are members of the request
		r.unset(sig)
	}
}

// unset reports the inputs that a request of the API would not set.
func (r *apiReader) unset(sig *Signature) {
	for i := range sig.Inputs {
		if in := &sig.Inputs[i]; !in.Optional && !slices.Contains([]string{r.api.Text, r.api.Query, r.api.IDs}, in.Name) && len(r.list) == 0 {
			r.fail("leaves out the input '%s', expected a model that needs a text only: give it a constant, or make it optional", in.Name)
		}
	}
}

// only returns the only tensor that a port can be.
func (r *apiReader) only(p *apiPort, sig *Signature) string {
	ports := sig.Inputs
	if p.output {
		ports = sig.Outputs
	}
	var taken, names []string
	for _, other := range apiPorts[r.api.Param] {
		taken = append(taken, *other.field(r.api))
	}
	for i := range ports {
		if have := &ports[i]; p.accepts(have.DType) && !have.Optional && !slices.Contains(taken, have.Name) && r.shape(p, have, sig) == "" {
			names = append(names, have.Name)
		}
	}
	switch {
	case len(names) == 1:
		return names[0]
	case len(names) == 0:
		r.fail("has no %s, and the model has no %s of type %s that could be it", p.key, p.side(), p.expected())
	default:
		r.fail("has no %s, expected one of the %ss %s", p.key, p.side(), strings.Join(names, ", "))
	}
	return ""
}

func (p *apiPort) side() string {
	if p.output {
		return "output"
	}
	return "input"
}

// tensor checks a named tensor.
func (r *apiReader) tensor(p *apiPort, name string, sig *Signature) {
	ports := sig.Inputs
	if p.output {
		ports = sig.Outputs
	}
	i := indexOf(ports, name)
	if i < 0 {
		var names []string
		for j := range ports {
			names = append(names, ports[j].Name)
		}
		r.fail("has %s=%s, expected an %s of the model: %s.%s", p.key, name, p.side(), strings.Join(names, ", "), DidYouMean(name, names))
		return
	}
	if d := ports[i].DType; !p.accepts(d) {
		r.fail("has %s=%s, which is %s, expected %s", p.key, name, typeName(d), p.expected())
		return
	}
	if want := r.shape(p, &ports[i], sig); want != "" {
		r.fail("has %s=%s with dims %s, expected %s", p.key, name, ports[i].Dims, want)
	}
}

// typeName returns the name of a type in configurations.
func typeName(d tensor.DType) string {
	if d == tensor.Bytes {
		return "TYPE_STRING"
	}
	return "TYPE_" + d.String()
}

// shape returns which dims were expected, empty if the tensor has them.
func (*apiReader) shape(p *apiPort, have *Port, sig *Signature) string {
	dims := have.Dims.Dims()
	switch {
	case p.one && p.output:
		if slices.ContainsFunc(dims, func(d int64) bool { return d != 1 }) {
			return "one element, [ 1 ]"
		}
	case p.one:
		if len(dims) > 1 || len(dims) == 1 && dims[0] != 1 && (dims[0] != -1 || sig.MaxBatch > 0) {
			return "one text, [ 1 ]"
		}
	case p.rank > 0 && len(dims) != p.rank:
		return fmt.Sprintf("%d dims", p.rank)
	case have.ShapeTensor, have.Unbatched && !p.output:
		return "one row per text"
	}
	return ""
}
