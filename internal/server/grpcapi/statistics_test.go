package grpcapi_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/server/grpcapi"
	"github.com/tutti-server/tutti/internal/server/httpapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
	"github.com/tutti-server/tutti/proto/inference"
)

// counting is a catalog whose statistics are all different numbers.
type counting struct {
	infer.Catalog
	list []infer.Statistics
}

func (c counting) Statistics(string, int64) ([]infer.Statistics, error) { return c.list, nil }

// number sets each number in v to the next value.
func number(v reflect.Value, n *uint64) {
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			number(field, n)
		}
	case reflect.Slice:
		for i := range v.Len() {
			number(v.Index(i), n)
		}
	case reflect.Uint64:
		*n++
		v.SetUint(*n)
	}
}

// TestStatisticsAgree compares the statistics of both protocols field by field.
func TestStatisticsAgree(t *testing.T) {
	t.Parallel()
	e := servertest.NewEcho()
	catalog := counting{e, []infer.Statistics{{Name: "m", Version: "3", Batches: make([]infer.BatchStats, 2)}, {Name: "n", Version: "1"}}}
	number(reflect.ValueOf(catalog.list), new(uint64))

	c, _, _ := serveWith(t, grpcapi.Settings{Infer: e, Catalog: catalog})
	m, err := c.ModelStatistics(t.Context(), &inference.ModelStatisticsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	over, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	httpapi.New(httpapi.Settings{Infer: e, Catalog: catalog}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v2/models/stats", http.NoBody))
	if diff := cmp.Diff(numbersAsText(t, w.Body.Bytes()), numbersAsText(t, over)); diff != "" {
		t.Errorf("(-HTTP +gRPC):\n%s", diff)
	}
}

// numbersAsText parses JSON with its numbers as strings, since protobuf's JSON has 64-bit integers as strings.
func numbersAsText(t *testing.T, b []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return asText(v)
}

func asText(v any) any {
	switch v := v.(type) {
	case float64:
		b, _ := json.Marshal(v)
		return string(b)
	case []any:
		for i := range v {
			v[i] = asText(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = asText(v[k])
		}
	}
	return v
}
