package cli_test

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// sendDiagnostics is what an agent does that was asked for its diagnostics.
func sendDiagnostics(t *testing.T, s *apptest.Server, a *apptest.Agent, content string) {
	t.Helper()
	var actions []agentapi.Action
	apptest.Eventually(t, "a request for diagnostics", func() string {
		if actions = a.MustCheckin(nil).Actions; len(actions) == 0 {
			return "no action"
		}
		return ""
	})
	size := int64(len(content))
	begun := apptest.Decode[agentapi.UploadBegun](t, s.Agents("POST", agentapi.PathUploads, a.Key, agentapi.UploadBegin{
		ActionID: actions[0].ID, AgentID: a.ID, Source: agentapi.UploadSource, File: agentapi.UploadFile{Name: "d.zip", MIMEType: "application/zip", Size: &size},
	}))
	sum := sha256.Sum256([]byte(content))
	path := agentapi.PathUploads + "/" + begun.UploadID
	got, err := s.Do(t.Context(), apptest.Request{
		Method: http.MethodPut, URL: s.AgentURL + path + "/0", Body: content,
		Header: apptest.Headers("Authorization", "ApiKey "+a.Key, agentapi.HeaderChunk, hex.EncodeToString(sum[:])),
	})
	if err != nil || got.Status != 200 {
		t.Fatalf("the chunk answered %d %s (%v)", got.Status, got.Body, err)
	}
	var end agentapi.UploadEnd
	all := sha256.Sum256(sum[:])
	end.TransitHash.SHA256 = hex.EncodeToString(all[:])
	if got := s.Agents("POST", path, a.Key, end); got.Status != 200 {
		t.Fatalf("the end answered %d %s", got.Status, got.Body)
	}
	a.Ack("", actions[0].ID)
}

func TestDiagnosticsAreRequestedAndSaved(t *testing.T) {
	o, s := loggedIn(t, quick)
	a := s.Enroll("web-01", "1.0.0")
	a.MustCheckin(nil)
	created := asJSON[adminapi.ActionCreated](o, "agents", "diagnostics", "web-01", "--no-wait")
	sendDiagnostics(t, s, a, "the first")
	if list := apptest.Decode[adminapi.UploadList](t, s.Admin("GET", "/api/fleet/agents/"+a.ID+"/uploads", nil)); len(list.Items) != 1 || list.Items[0].ActionId != created.ActionId {
		t.Errorf("the uploads are %+v", list)
	}

	done := make(chan struct{})
	go func() {
		defer close(done)
		sendDiagnostics(t, s, a, "the second")
	}()
	file := filepath.Join(t.TempDir(), "web-01.zip")
	got := o.try("agents", "diagnostics", "web-01", "--file", file)
	<-done
	o.contains(got.out, file)
	if b, err := os.ReadFile(file); string(b) != "the second" || err != nil {
		t.Errorf("the file is %q (%v)", b, err)
	}

	o.fails(1, []string{"agents", "diagnostics", "web-01", "--timeout", "1ms"}, "no diagnostics within 1ms")
}
