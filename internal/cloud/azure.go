package cloud

import (
	"cmp"
	"context"
	"errors"
	"io"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/tutti-server/tutti/core/status"
)

// bucketAzure is a folder in an Azure container.
type bucketAzure struct {
	address
	client *container.Client
}

// openAzure uses the account's key from the credential file or AZURE_STORAGE_KEY, else the identity that
// AZURE_STORAGE_AUTH_TYPE selects, else anonymous access. AZURE_STORAGE_SERVICE_ENDPOINT names another server, with
// the account in its path.
func openAzure(a address, file *credentialFile, o *Options) (driver, error) {
	server := cmp.Or(strings.TrimSuffix(o.Env("AZURE_STORAGE_SERVICE_ENDPOINT"), "/"), "https://"+a.account+".blob.core.windows.net")
	key := azureKey{Account: o.Env("AZURE_STORAGE_ACCOUNT"), Key: o.Env("AZURE_STORAGE_KEY")}
	if found, ok := longestPrefix(file.AS, a.text); ok {
		key = found
	}
	key.Account = cmp.Or(key.Account, a.account)
	options := &container.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: newClient()}}
	client, err := azureClient(server+"/"+a.bucket, key, o, options)
	if err != nil {
		return nil, status.Errorf(status.InvalidArg, "opening %s: %s", a.text, firstLine(err.Error()))
	}
	return &bucketAzure{address: a, client: client}, nil
}

func azureClient(url string, key azureKey, o *Options, options *container.ClientOptions) (*container.Client, error) {
	if key.Key != "" {
		shared, err := container.NewSharedKeyCredential(key.Account, key.Key)
		if err != nil {
			return nil, errors.New("the account's key is no base64") // the library's text could contain the key
		}
		return container.NewClientWithSharedKeyCredential(url, shared, options)
	}
	var token azcore.TokenCredential
	var err error
	switch kind := o.Env("AZURE_STORAGE_AUTH_TYPE"); kind {
	case "":
		return container.NewClientWithNoCredential(url, options)
	case "managed_identity":
		identity := &azidentity.ManagedIdentityCredentialOptions{}
		if id := o.Env("AZURE_STORAGE_CLIENT_ID"); id != "" {
			identity.ID = azidentity.ClientID(id)
		}
		token, err = azidentity.NewManagedIdentityCredential(identity)
	case "default":
		token, err = azidentity.NewDefaultAzureCredential(nil)
	default:
		err = errors.New("AZURE_STORAGE_AUTH_TYPE is '" + kind + "', expected 'managed_identity' or 'default'")
	}
	if err != nil {
		return nil, err
	}
	return container.NewClient(url, token, options)
}

func (b *bucketAzure) fail(what string, err error) error {
	if answer, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return failed(b.text, what, answer.StatusCode, errors.New(answer.ErrorCode))
	}
	return failed(b.text, what, 0, err)
}

// List implements Bucket.
func (b *bucketAzure) List(ctx context.Context, prefix string) ([]Object, error) {
	return listAll(ctx, b, b.text, prefix)
}

// pages implements lister.
func (b *bucketAzure) pages(ctx context.Context, prefix string, yield func([]Object) bool) error {
	from := join(b.folder, prefix)
	pages := b.client.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Prefix: &from})
	for pages.More() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return b.fail("listing", err)
		}
		var list []Object
		for _, item := range page.Segment.BlobItems {
			p := item.Properties
			if item.Name == nil || p == nil || p.ContentLength == nil || p.ETag == nil {
				continue
			}
			if key := relativeKey(b.folder, *item.Name); key != "" {
				list = append(list, Object{Key: key, Size: *p.ContentLength, Tag: string(*p.ETag), MD5: p.ContentMD5})
			}
		}
		if !yield(list) {
			return nil
		}
	}
	return nil
}

// Read implements Bucket.
func (b *bucketAzure) Read(ctx context.Context, o Object, offset int64) (io.ReadCloser, error) {
	return b.readRange(ctx, o, offset, -1)
}

// readRange implements ranger.
func (b *bucketAzure) readRange(ctx context.Context, o Object, offset, n int64) (io.ReadCloser, error) {
	tag := azcore.ETag(o.Tag)
	out, err := b.client.NewBlobClient(join(b.folder, o.Key)).DownloadStream(ctx, &blob.DownloadStreamOptions{
		Range:            blob.HTTPRange{Offset: offset, Count: max(n, 0)},
		AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: &tag}},
	})
	if err != nil {
		return nil, b.fail("reading '"+o.Key+"' of", err)
	}
	return out.Body, nil
}

// Write implements Bucket.
func (b *bucketAzure) Write(ctx context.Context, key string, body io.ReadSeeker, _ int64) error {
	_, err := b.client.NewBlockBlobClient(join(b.folder, key)).UploadStream(ctx, body, &blockblob.UploadStreamOptions{})
	if err != nil {
		return b.fail("writing '"+key+"' to", err)
	}
	return nil
}

// Delete implements Bucket.
func (b *bucketAzure) Delete(ctx context.Context, key string) error {
	if _, err := b.client.NewBlobClient(join(b.folder, key)).Delete(ctx, nil); err != nil {
		return ignoreMissing(b.fail("deleting '"+key+"' of", err))
	}
	return nil
}
