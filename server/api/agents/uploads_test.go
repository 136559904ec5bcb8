package agents_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// begin is the announcement of a file, with the fields that an Elastic Agent sends.
func begin(actionID, agentID string, size int) string {
	return fmt.Sprintf(`{"action_id":%q,"agent_id":%q,"src":"agent","file":{"name":"elastic-agent-diagnostics-2026-01-31T12-00-00Z-00.zip","ext":"zip","mime_type":"application/zip","size":%d,
		"compression":"Deflate","hash":{"sha256":"x"}},"contents":[],"event":{"id":"e"},"host":{"hostname":"web-01"}}`, actionID, agentID, size)
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// putChunk sends a chunk.
func putChunk(t *testing.T, s *apptest.Server, key, path, sum string, body []byte) apptest.Answer {
	t.Helper()
	got, err := s.Do(t.Context(), apptest.Request{
		Method: http.MethodPut, URL: s.AgentURL + path, Body: body, Header: apptest.Headers("Authorization", "ApiKey "+key, "X-Chunk-Sha2", sum),
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// transit is the body that ends an upload.
func transit(chunks ...[]byte) string {
	var all []byte
	for _, c := range chunks {
		sum := sha256.Sum256(c)
		all = append(all, sum[:]...)
	}
	return `{"transithash":{"sha256":"` + digest(all) + `"}}`
}

func TestDiagnosticsAreRequestedUploadedAndDownloaded(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	a := s.Enroll("web-01", "1.0.0")
	a.MustCheckin(nil)
	uploads := func() []adminapi.Upload {
		t.Helper()
		return apptest.Decode[adminapi.UploadList](t, s.Admin("GET", "/api/fleet/agents/"+a.ID+"/uploads", nil)).Items
	}
	if got := s.Admin("GET", "/api/fleet/agents/"+a.ID+"/uploads", nil); string(got.Body) != `{"items":[]}` {
		t.Errorf("before the request the uploads are %s", got.Body)
	}

	created := apptest.Decode[adminapi.ActionCreated](t, s.Admin("POST", "/api/fleet/agents/"+a.ID+"/request_diagnostics", `{"additional_metrics":["CPU"]}`))
	resp := a.MustCheckin(nil)
	if len(resp.Actions) != 1 {
		t.Fatalf("the agent got %+v", resp.Actions)
	}
	act := resp.Actions[0]
	if act.ID != created.ActionId || act.Type != "REQUEST_DIAGNOSTICS" || string(act.Data) != `{"additional_metrics":["CPU"]}` || act.Expiration == nil || act.Expiration.Sub(act.CreatedAt).Round(time.Second) != 3*time.Hour {
		t.Errorf("the action is %+v with data %s", act, act.Data)
	}
	if got := uploads(); len(got) != 1 || got[0].Status != adminapi.UploadInProgress || got[0].Id != act.ID || got[0].ActionId != act.ID || got[0].FilePath != "" {
		t.Errorf("after the request the uploads are %+v", got)
	}

	first, last := bytes.Repeat([]byte("a"), agentapi.ChunkSize), []byte("the end")
	got := s.Agents("POST", "/api/fleet/uploads", a.Key, begin(act.ID, a.ID, len(first)+len(last)))
	begun := apptest.Decode[agentapi.UploadBegun](t, got)
	if begun.ChunkSize != 4194304 || begun.UploadID == "" {
		t.Fatalf("the upload began with %s", got.Body)
	}
	path := "/api/fleet/uploads/" + begun.UploadID
	if got := uploads(); len(got) != 1 || got[0].Status != adminapi.UploadAwaiting || got[0].Id != begun.UploadID {
		t.Errorf("during the upload the uploads are %+v", got)
	}
	if got := s.Agents("POST", path, a.Key, transit(first, last)); got.Status != 400 || got.ErrorBody().Code != "ErrMissingChunks" {
		t.Errorf("the end without chunks answered %d %s", got.Status, got.Body)
	}
	if got := putChunk(t, s, a.Key, path+"/0", digest(last), first); got.Status != 400 || got.ErrorBody().Code != "ErrHashMismatch" {
		t.Errorf("a damaged chunk answered %d %s", got.Status, got.Body)
	}
	for range 2 { // a repeated chunk replaces the first
		for n, chunk := range [][]byte{first, last} {
			if got := putChunk(t, s, a.Key, fmt.Sprint(path, "/", n), strings.ToUpper(digest(chunk)), chunk); got.Status != 200 || len(got.Body) != 0 {
				t.Fatalf("chunk %d answered %d %s", n, got.Status, got.Body)
			}
		}
	}
	if got := s.Agents("POST", path, a.Key, transit(first, last)); got.Status != 200 || string(got.Body) != `{"status":"ok"}` {
		t.Fatalf("the end answered %d %s", got.Status, got.Body)
	}
	ack := fmt.Sprintf(`{"events":[{"type":"ACTION_RESULT","subtype":"ACKNOWLEDGED","agent_id":%q,"action_id":%q,"message":"done","timestamp":"2026-01-31T12:00:00Z","data":{"upload_id":%q}}]}`, a.ID, act.ID, begun.UploadID)
	if got := s.Agents("POST", a.Path("acks"), a.Key, ack); got.Status != 200 {
		t.Fatalf("the acknowledgement answered %d %s", got.Status, got.Body)
	}

	ready := uploads()
	if len(ready) != 1 || ready[0].Status != adminapi.UploadReady || ready[0].FilePath != "/api/fleet/agents/files/"+begun.UploadID+"/elastic-agent-diagnostics-2026-01-31T12-00-00Z-00.zip" {
		t.Fatalf("after the upload the uploads are %+v", ready)
	}
	file := s.Admin("GET", ready[0].FilePath, nil)
	if file.Status != 200 || !bytes.Equal(file.Body, append(bytes.Clone(first), last...)) {
		t.Errorf("the download answered %d with %d bytes", file.Status, len(file.Body))
	}
	for name, want := range map[string]string{
		"Content-Type": "application/octet-stream", "X-Content-Type-Options": "nosniff",
		"Content-Disposition": `attachment; filename=elastic-agent-diagnostics-2026-01-31T12-00-00Z-00.zip`,
	} {
		if got := file.Header.Get(name); got != want {
			t.Errorf("the download has %s: %s, want %s", name, got, want)
		}
	}
	if got := s.Admin("GET", "/api/fleet/agents/files/"+begun.UploadID+"/a%22%0d%0ab.zip", nil); got.Status != 200 || strings.ContainsAny(got.Header.Get("Content-Disposition"), "\r\n") {
		t.Errorf("a name with a line break answered %d %q", got.Status, got.Header)
	}

	if got := s.Admin("DELETE", "/api/fleet/agents/files/"+begun.UploadID, nil); got.Status != 200 || apptest.Decode[adminapi.UploadDeleted](t, got) != (adminapi.UploadDeleted{Deleted: true, Id: begun.UploadID}) {
		t.Errorf("the deletion answered %d %s", got.Status, got.Body)
	}
	if got := uploads(); len(got) != 0 {
		t.Errorf("after the deletion the uploads are %+v", got)
	}
	if got := s.Admin("GET", ready[0].FilePath, nil); got.Status != 404 {
		t.Errorf("the deleted file answered %d", got.Status)
	}
	if left, err := os.ReadDir(filepath.Join(s.Data, "uploads")); err != nil || len(left) != 0 {
		t.Errorf("the deletion left %v (%v)", left, err)
	}
	var verbs []string
	for _, e := range apptest.Decode[adminapi.AuditList](t, s.Admin("GET", "/api/v1/audit", nil)).Items {
		verbs = append(verbs, e.Verb)
	}
	for _, want := range []string{"agent.request_diagnostics", "diagnostics.delete"} {
		if !slices.Contains(verbs, want) {
			t.Errorf("the audit trail has %v, not %s", verbs, want)
		}
	}
}
