package cloud

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
)

// bucketGCS is a folder in a Google Cloud Storage bucket, accessed by the JSON API.
type bucketGCS struct {
	address
	client *http.Client
	server string
}

const (
	gcsServer = "https://storage.googleapis.com"
	gcsScope  = "https://www.googleapis.com/auth/devstorage.read_write"
	// maxResponse bounds a page of a listing, or an error text, in bytes.
	maxResponse = 64 << 20
)

// openGCS uses a key file from the credential file, else Google's application default credentials
// (GOOGLE_APPLICATION_CREDENTIALS, the user's login, the machine), else anonymous access. STORAGE_EMULATOR_HOST
// names another server.
func openGCS(ctx context.Context, a address, file *credentialFile, o *Options) (driver, error) {
	b := &bucketGCS{address: a, client: newClient(), server: gcsServer}
	if host := o.Env("STORAGE_EMULATOR_HOST"); host != "" {
		if !strings.Contains(host, "://") {
			host = "http://" + host
		}
		b.server = strings.TrimSuffix(host, "/")
		return b, nil
	}
	ctx = context.WithValue(context.WithoutCancel(ctx), oauth2.HTTPClient, b.client)
	var tokens oauth2.TokenSource
	if path, ok := longestPrefix(file.GS, a.text); ok && path != "" {
		key, err := os.ReadFile(path)
		if err != nil {
			return nil, failed(a.text, "opening", 0, err)
		}
		jwt, err := google.JWTConfigFromJSON(key, gcsScope)
		if err != nil {
			return nil, failed(a.text, "opening", http.StatusUnauthorized, err)
		}
		tokens = jwt.TokenSource(ctx)
	} else if found, err := google.FindDefaultCredentials(ctx, gcsScope); err == nil {
		tokens = found.TokenSource
	} else if o.Env("GOOGLE_APPLICATION_CREDENTIALS") != "" {
		return nil, failed(a.text, "opening", http.StatusUnauthorized, err)
	}
	if tokens != nil {
		b.client = &http.Client{Transport: &oauth2.Transport{Source: oauth2.ReuseTokenSource(nil, tokens), Base: b.client.Transport}}
	}
	return b, nil
}

// do sends a request and returns the response if its status is the expected one.
func (b *bucketGCS) do(ctx context.Context, what, method, path string, header http.Header, body io.Reader, size int64) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, b.server+path, body)
	if err != nil {
		return nil, err
	}
	if header != nil {
		req.Header = header
	}
	req.ContentLength = size
	resp, err := b.client.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // the URL may contain a token
		}
		code := 0
		if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok && refused.Response != nil && refused.Response.StatusCode/100 == 4 {
			code = http.StatusUnauthorized // the server of tokens refuses the key
		}
		return nil, failed(b.text, what, code, err)
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096)) // best effort
	var e struct{ Error struct{ Message string } }
	_ = json.Unmarshal(text, &e) // another text has no message
	return nil, failed(b.text, what, resp.StatusCode, errors.New(cmp.Or(e.Error.Message, string(text))))
}

// object returns the path of an object.
func (b *bucketGCS) object(key string) string {
	return "/storage/v1/b/" + url.PathEscape(b.bucket) + "/o/" + url.PathEscape(join(b.folder, key))
}

type gcsPage struct {
	Next  string `json:"nextPageToken"`
	Items []struct {
		Name       string `json:"name"`
		Size       string `json:"size"`
		Generation string `json:"generation"`
		MD5        string `json:"md5Hash"`
	} `json:"items"`
}

// List implements Bucket.
func (b *bucketGCS) List(ctx context.Context, prefix string) ([]Object, error) {
	return listAll(ctx, b, b.text, prefix)
}

// pages implements lister.
func (b *bucketGCS) pages(ctx context.Context, prefix string, yield func([]Object) bool) error {
	for token := ""; ; {
		q := url.Values{"prefix": {join(b.folder, prefix)}, "fields": {"nextPageToken,items(name,size,generation,md5Hash)"}}
		if token != "" {
			q.Set("pageToken", token)
		}
		resp, err := b.do(ctx, "listing", http.MethodGet, "/storage/v1/b/"+url.PathEscape(b.bucket)+"/o?"+q.Encode(), nil, nil, 0)
		if err != nil {
			return err
		}
		var page gcsPage
		err = json.NewDecoder(io.LimitReader(resp.Body, maxResponse)).Decode(&page)
		if err = errors.Join(err, resp.Body.Close()); err != nil {
			return failed(b.text, "listing", 0, err)
		}
		list := make([]Object, 0, len(page.Items))
		for _, item := range page.Items {
			key := relativeKey(b.folder, item.Name)
			size, err := strconv.ParseInt(item.Size, 10, 64)
			if key == "" || err != nil {
				continue
			}
			o := Object{Key: key, Size: size, Tag: item.Generation}
			if sum, err := base64.StdEncoding.DecodeString(item.MD5); err == nil && len(sum) > 0 {
				o.MD5 = sum
			}
			list = append(list, o)
		}
		if token = page.Next; !yield(list) || token == "" {
			return nil
		}
	}
}

// Read implements Bucket.
func (b *bucketGCS) Read(ctx context.Context, o Object, offset int64) (io.ReadCloser, error) {
	return b.readRange(ctx, o, offset, -1)
}

// readRange implements ranger.
func (b *bucketGCS) readRange(ctx context.Context, o Object, offset, n int64) (io.ReadCloser, error) {
	h := http.Header{}
	if offset > 0 || n >= 0 {
		h.Set("Range", byteRange(offset, n))
	}
	path := b.object(o.Key) + "?alt=media"
	if o.Tag != "" {
		path += "&ifGenerationMatch=" + url.QueryEscape(o.Tag)
	}
	resp, err := b.do(ctx, "reading '"+o.Key+"' of", http.MethodGet, path, h, nil, 0)
	if err != nil {
		return nil, err
	}
	if offset > 0 && resp.StatusCode != http.StatusPartialContent {
		return nil, errors.Join(errors.New("the server does not read from an offset"), resp.Body.Close())
	}
	if now := resp.Header.Get("X-Goog-Generation"); now != "" && now != o.Tag { // a server may ignore conditions
		return nil, errors.Join(changed(o), resp.Body.Close())
	}
	return resp.Body, nil
}

// Write implements Bucket.
func (b *bucketGCS) Write(ctx context.Context, key string, body io.ReadSeeker, size int64) error {
	path := "/upload/storage/v1/b/" + url.PathEscape(b.bucket) + "/o?uploadType=media&name=" + url.QueryEscape(join(b.folder, key))
	header := http.Header{"Content-Type": {"application/octet-stream"}}
	resp, err := b.do(ctx, "writing '"+key+"' to", http.MethodPost, path, header, io.NopCloser(body), size)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// Delete implements Bucket.
func (b *bucketGCS) Delete(ctx context.Context, key string) error {
	resp, err := b.do(ctx, "deleting '"+key+"' of", http.MethodDelete, b.object(key), nil, nil, 0)
	if err != nil {
		return ignoreMissing(err)
	}
	return resp.Body.Close()
}
