package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/muster-fleet/muster/agent/backoff"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

const (
	// chunkTimeout bounds the transfer of one chunk: 4 MiB at 18 kB/s.
	chunkTimeout = 4 * time.Minute
	// uploadTries bounds the attempts of each request of an upload, which take some two
	// minutes: a server that restarts is back by then.
	uploadTries = 8
	// maxChunkSize bounds the chunks that a server asks for.
	maxChunkSize = 64 << 20
)

// Upload sends a zip file for an action and returns the id that the server has given it. It
// repeats requests that may succeed later.
func (c *Client) Upload(ctx context.Context, actionID, name string, data []byte) (uploadID string, err error) {
	size := int64(len(data))
	begin, err := json.Marshal(agentapi.UploadBegin{
		ActionID: actionID, AgentID: c.AgentID, Source: agentapi.UploadSource,
		File: agentapi.UploadFile{Name: name, Ext: "zip", MIMEType: "application/zip", Size: &size},
	})
	if err != nil {
		return "", err
	}
	answer, err := c.sendPart(ctx, http.MethodPost, agentapi.PathUploads, nil, begin)
	if err != nil {
		return "", err
	}
	var begun agentapi.UploadBegun
	if err := json.Unmarshal(answer, &begun); err != nil || begun.UploadID == "" || begun.ChunkSize <= 0 || begun.ChunkSize > maxChunkSize {
		return "", fmt.Errorf("%s: the answer is not what the protocol says: %.100q", agentapi.PathUploads, answer)
	}
	path := agentapi.PathUploads + "/" + url.PathEscape(begun.UploadID)
	transit := sha256.New()
	for n := 0; len(data) > 0; n++ {
		chunk := data[:min(int64(len(data)), begun.ChunkSize)]
		data = data[len(chunk):]
		sum := sha256.Sum256(chunk)
		transit.Write(sum[:])
		header := http.Header{agentapi.HeaderChunk: {hex.EncodeToString(sum[:])}, "Content-Type": {"application/octet-stream"}}
		if _, err := c.sendPart(ctx, http.MethodPut, fmt.Sprint(path, "/", n), header, chunk); err != nil {
			return "", err
		}
	}
	var end agentapi.UploadEnd
	end.TransitHash.SHA256 = hex.EncodeToString(transit.Sum(nil))
	body, err := json.Marshal(end)
	if err != nil {
		return "", err
	}
	_, err = c.sendPart(ctx, http.MethodPost, path, nil, body)
	return begun.UploadID, err
}

// sendPart makes one request of an upload, and repeats it while that may help.
func (c *Client) sendPart(ctx context.Context, method, path string, header http.Header, body []byte) ([]byte, error) {
	var b backoff.Backoff
	for try := 1; ; try++ {
		answer, err := c.tryPart(ctx, method, path, header, body)
		var refusal *StatusError
		if err == nil || errors.As(err, &refusal) && !retryable(refusal.HTTPStatus) || try == uploadTries {
			return answer, err
		}
		if serr := backoff.Sleep(ctx, waitFor(err, b.Next(), nil)); serr != nil {
			return nil, serr
		}
	}
}

func (c *Client) tryPart(ctx context.Context, method, path string, header http.Header, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, chunkTimeout)
	defer cancel()
	resp, answer, err := c.send(ctx, method, path, c.APIKey, header, body)
	if err == nil && resp.StatusCode != http.StatusOK {
		return nil, statusError(resp, answer)
	}
	return answer, err
}
