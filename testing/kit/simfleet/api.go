package simfleet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// admin is the first administrator, whose key the server has made.
const admin = ""

// people use the admin API besides the first administrator.
var people = []string{"ann", "ben", "ci"}

// api calls the admin API with somebody's key. A body in bytes is sent as it is, any other as
// JSON. out is decoded from the answer unless it is nil.
func (f *Fleet) api(ctx context.Context, as, method, path string, body, out any) error {
	key := f.AdminKey
	if as != admin {
		key = f.keys[as]
	}
	answer, err := f.do(ctx, key, method, f.AdminURL+path, body, nil)
	if err != nil || out == nil {
		return err
	}
	return json.Unmarshal(answer, out)
}

func (f *Fleet) do(ctx context.Context, key, method, url string, body any, header map[string]string) ([]byte, error) {
	data, raw := body.([]byte)
	if body != nil && !raw {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "ApiKey "+key)
	req.Header.Set("kbn-xsrf", "simfleet")
	if !raw {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, v := range header {
		req.Header.Set(name, v)
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= http.StatusMultipleChoices {
		err = fmt.Errorf("%s %s: %s: %s", method, url, resp.Status, bytes.TrimSpace(answer))
	}
	return answer, err
}

// object is a JSON object of the admin API.
type object = map[string]any

// post is api for the most common calls.
func (f *Fleet) post(ctx context.Context, as, path string, body, out any) error {
	return f.api(ctx, as, http.MethodPost, path, body, out)
}

// addPeople creates the keys of people.
func (f *Fleet) addPeople(ctx context.Context) error {
	for _, name := range people {
		var made struct {
			Item struct {
				APIKey string `json:"api_key"`
			} `json:"item"`
		}
		if err := f.post(ctx, admin, "/api/v1/admin_keys", object{"name": name}, &made); err != nil {
			return err
		}
		f.keys[name] = made.Item.APIKey
	}
	return nil
}
