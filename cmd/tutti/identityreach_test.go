package main

import (
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tutti-server/tutti/proto/inference"
)

// TestIdentityNamespaces serves two repositories as namespaces, to a client who may use the models of the first only.
func TestIdentityNamespaces(t *testing.T) {
	t.Parallel()
	one, two := copyModels(t, "text-a", "shared"), copyModels(t, "image-b", "shared")
	text := strings.Replace(authText, `models: ["text-*"]`, "namespaces: ["+one+"/]", 1)
	a := serve(t, "--model-repository", one, "--model-repository", two, "--model-namespacing=true", "--auth-file", authFile(t, text),
		"--model-control-mode=explicit", "--load-model=text-a", "--load-model=image-b")
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, tt := range []struct {
		request, token string
		code           int
		want           string
	}{
		{"POST /v2/models/text-a/infer", userToken, 200, `"data":[7]`},
		{"POST /v2/models/image-b/infer", userToken, 403, "of model 'image-b'"},
		{"POST /v2/models/image-b/infer", operatorToken, 200, `"data":[7]`},
		{"POST /v2/models/missing/infer", userToken, 403, "of model 'missing'"},
		{"POST /v2/repository/models/shared/load", userToken, 403, "of model 'shared'"}, // it is in both
		{"POST /v2/repository/models/image-b/unload", userToken, 403, "of model 'image-b'"},
		{"POST /v2/repository/models/..%2Fimage-b/load", userToken, 404, ""}, // no model has a slash
		{"POST /v2/repository/models/text-a/unload", userToken, 200, ""},
		{"POST /v2/repository/models/text-a/load", userToken, 200, ""},
		{"POST /v2/repository/index", userToken, 200, `"text-a"`},
		{"POST /v2/repository/index", operatorToken, 200, `"image-b"`},
		{"GET /v2/models/stats", userToken, 200, `"text-a"`},
		{"POST /v2/repository/models/shared/load", operatorToken, 200, ""},
		{"POST /v2/models/shared/infer", userToken, 403, "of model 'shared'"},
	} {
		method, path, _ := strings.Cut(tt.request, " ")
		body := ""
		if strings.HasSuffix(path, "infer") {
			body = copyRequest
		}
		code, _, got := ask(t, c, method, "http://"+a.http+path, body, "Authorization", "Bearer "+tt.token)
		if code != tt.code || !strings.Contains(got, tt.want) || tt.token == userToken && code == 200 && (strings.Contains(got, "image-b") || strings.Contains(got, "shared")) {
			t.Errorf("%s: %d, %s, want %d, %s", tt.request, code, got, tt.code, tt.want)
		}
	}
	models := inference.NewGRPCInferenceServiceClient(dialWith(t, a.grpc, insecure.NewCredentials()))
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+userToken)
	for model, want := range map[string]codes.Code{"text-a": codes.OK, "image-b": codes.PermissionDenied, "shared": codes.PermissionDenied} {
		if _, err := models.ModelInfer(ctx, copyMessage(model)); grpcstatus.Code(err) != want {
			t.Errorf("%s: %v, want %v", model, err, want)
		}
		if _, err := models.RepositoryModelLoad(ctx, &inference.RepositoryModelLoadRequest{ModelName: model}); grpcstatus.Code(err) != want {
			t.Errorf("load of %s: %v, want %v", model, err, want)
		}
	}
}

// TestIdentityHealth reads the list of degraded parts as a client who may use some models: others' names and reasons are not in it.
func TestIdentityHealth(t *testing.T) {
	t.Parallel()
	root := copyModels(t, "text-a", "image-b", "text-c")
	for _, name := range []string{"image-b", "text-c"} {
		writeModel(t, root, name, `backend: "nonsense"`)
	}
	a := serve(t, "--model-repository", root, "--auth-file", authFile(t, authText), "--exit-on-error=false")
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for token, others := range map[string]bool{userToken: false, operatorToken: true} {
		code, _, got := ask(t, c, http.MethodGet, "http://"+a.http+"/v2/health/ready?verbose", "", "Authorization", "Bearer "+token)
		if code != http.StatusBadRequest || !strings.Contains(got, `"text-c"`) || strings.Contains(got, "image-b") != others {
			t.Errorf("for %s: %d, %s; want text-c, and image-b: %v", token, code, got, others)
		}
	}
}

// TestIdentityReach loads and unloads models in ways that reach others, as a client who may control some models: with a configuration that is
// an ensemble over a model of others, with a file that is a program, and along with what a model uses.
func TestIdentityReach(t *testing.T) {
	t.Parallel()
	const ensemble = `{\"platform\":\"ensemble\",\"input\":[{\"name\":\"INPUT0\",\"data_type\":\"TYPE_INT32\",\"dims\":[1]}],` +
		`\"output\":[{\"name\":\"OUTPUT0\",\"data_type\":\"TYPE_INT32\",\"dims\":[1]}],\"ensemble_scheduling\":{\"step\":[{\"model_name\":\"image-b\",` +
		`\"model_version\":-1,\"input_map\":{\"INPUT0\":\"INPUT0\"},\"output_map\":{\"OUTPUT0\":\"OUTPUT0\"}}]}}`
	a := serve(t, "--model-repository", copyModels(t, "text-a", "image-b"), "--auth-file", authFile(t, authText), "--model-control-mode=explicit", "--load-model=*")
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, tt := range []struct{ path, body string }{
		{"load", `{"parameters":{"config":"` + ensemble + `"}}`},
		{"load", `{"parameters":{"config":"{\"backend\":\"python\"}","file:1/model.py":"cHJpbnQoMSk="}}`},
		{"unload", `{"parameters":{"unload_dependents":true}}`},
	} {
		code, _, got := ask(t, c, http.MethodPost, "http://"+a.http+"/v2/repository/models/text-a/"+tt.path, tt.body, "Authorization", "Bearer "+userToken)
		if code != 403 || !strings.Contains(got, "reaches other models: 'ada' may not use 'model-repository' of all models") {
			t.Errorf("%s with %s: %d, %s", tt.path, tt.body, code, got)
		}
	}
	models := inference.NewGRPCInferenceServiceClient(dialWith(t, a.grpc, insecure.NewCredentials()))
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+userToken)
	text := &inference.ModelRepositoryParameter_StringParam{StringParam: strings.ReplaceAll(ensemble, `\"`, `"`)}
	_, err := models.RepositoryModelLoad(ctx, &inference.RepositoryModelLoadRequest{ModelName: "text-a", Parameters: map[string]*inference.ModelRepositoryParameter{"config": {ParameterChoice: text}}})
	if grpcstatus.Code(err) != codes.PermissionDenied {
		t.Error(err)
	}
	yes := &inference.ModelRepositoryParameter_BoolParam{BoolParam: true}
	_, err = models.RepositoryModelUnload(ctx, &inference.RepositoryModelUnloadRequest{ModelName: "text-a", Parameters: map[string]*inference.ModelRepositoryParameter{"unload_dependents": {ParameterChoice: yes}}})
	if grpcstatus.Code(err) != codes.PermissionDenied {
		t.Error(err)
	}
	// Somebody who may control all models may do it.
	code, _, got := ask(t, c, http.MethodPost, "http://"+a.http+"/v2/repository/models/text-a/load", `{"parameters":{"config":"`+ensemble+`"}}`, "Authorization", "Bearer "+operatorToken)
	if code != 200 {
		t.Errorf("%d, %s", code, got)
	}
}
