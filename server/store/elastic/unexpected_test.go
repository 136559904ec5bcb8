package elastic_test

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/storetest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Agents may send any metadata. Values that the mappings do not allow for are stored
// unchanged, and do not prevent storing the agent.
func TestUnexpectedMetadataIsStored(t *testing.T) {
	s := open(t, place(t))
	ctx := t.Context()
	long := strings.Repeat("ü", 40_000) // more bytes than a keyword can have
	for i, metadata := range []string{
		``, `null`, `[]`, `"text"`, `{}`, `{"host":"db-1"}`, `{"host":{"hostname":{"a":1}}}`, `{"host":{"hostname":["a",["b"],{"c":1},null,7]}}`,
		`{"elastic":{"agent":{"snapshot":"maybe","upgradeable":[true,"no"],"version":8.19}}}`, `{"os":{"version":12345678901234567890.125}}`,
		`{"host":{"hostname":"a"},"host":{"hostname":"twice"}}`, `{"` + long + `":1,"host":{"id":"` + long + `","hostname":"` + long + `"}}`,
		`{"host":{"ip":["10.0.0.1","fe80::1"],"mac":[]},"a":` + strings.Repeat(`{"a":`, fleet.MaxDepth-2) + `1` + strings.Repeat(`}`, fleet.MaxDepth-2) + `}`,
	} {
		want := agent(fmt.Sprint("agent-", i))
		want.LocalMetadata, want.Tags = json.RawMessage(metadata), []string{"site=berlin", long, ""}
		if metadata == "" {
			want.LocalMetadata = nil
		}
		want.Version = "no version <&>"
		if i%2 == 0 {
			want.UserMetadata = json.RawMessage(`{"note":"` + strings.Repeat("n", 50_000) + `"}`) // makes the labels too long for doc values
		}
		want.UpgradeDetails = &agentapi.UpgradeDetails{State: "UPG_ODD", Metadata: agentapi.UpgradeMetadata{ErrorMsg: long, DownloadRate: 1e300}}
		if err := s.Agents().Create(ctx, want); err != nil {
			t.Errorf("metadata %.60s: %v", metadata, err)
			continue
		}
		got, err := s.Agents().Get(ctx, want.ID)
		must(t, err)
		if string(got.LocalMetadata) != string(want.LocalMetadata) && metadata != "null" {
			t.Errorf("metadata %.60s is returned as %.60s", want.LocalMetadata, got.LocalMetadata)
		}
		must(t, s.Agents().Touch(ctx, []fleet.Touch{{AgentID: want.ID, At: now, Status: long, Message: long}}))
		again, err := s.Agents().Get(ctx, want.ID)
		must(t, err)
		if string(again.LocalMetadata) != string(got.LocalMetadata) || again.Last.Message != long || again.Last.Status != long {
			t.Errorf("metadata %.60s: a touch changed other fields", metadata)
		}
		found := 0
		must(t, s.Agents().Census(ctx, func(c fleet.Census) {
			if c.ID != want.ID {
				return
			}
			found++
			if labels := fleet.EncodeLabels(want.Labels()); c.Labels != labels {
				t.Errorf("metadata %.60s: labels are %.60q, want %.60q", metadata, c.Labels, labels)
			}
		}))
		if found != 1 {
			t.Errorf("metadata %.60s: the census has it %d times", metadata, found)
		}
	}
	_, total, err := s.Agents().List(ctx, store.AgentQuery{Sort: store.ByHostname})
	must(t, err)
	if total != 13 {
		t.Errorf("%d agents are listed", total)
	}
}

// A document above 1 MiB is compressed.
func TestLargeDocumentIsStoredCompletely(t *testing.T) {
	s := open(t, place(t))
	ctx := t.Context()
	want := fleet.Preview{Hash: "sha256:aa", RolloutID: "r", At: now}
	for range 20_000 {
		want.Targets = append(want.Targets, fleet.PreviewTarget{AgentID: rand.Text(), Hostname: "host", Policy: "default", From: "1.0.0", To: "1.1.0"})
	}
	must(t, s.Previews().Create(ctx, want))
	got, err := s.Previews().Get(ctx, want.Hash)
	must(t, err)
	if len(got.Targets) != len(want.Targets) || got.Targets[19_999].AgentID != want.Targets[19_999].AgentID {
		t.Fatalf("%d of %d targets are returned", len(got.Targets), len(want.Targets))
	}
	got.Targets = got.Targets[:1] // not compressed any more
	storetest.Update(t, s.Previews(), got)
	list, total, err := s.Previews().List(ctx, 0, 0)
	must(t, err)
	if total != 1 || len(list) != 1 || len(list[0].Targets) != 1 {
		t.Fatalf("%d previews of %d", len(list), total)
	}
}

func TestInvalidIDsAreNotFound(t *testing.T) {
	s := open(t, place(t))
	ctx := t.Context()
	for _, id := range []string{"", strings.Repeat("n", 1000), "a/b?c=d#e", "..", "_all", "*", "\u00e4\n"} {
		_, err := s.Agents().Get(ctx, id)
		wantNotFound(t, id, err)
		_, err = s.Agents().ByAccessKey(ctx, id)
		wantNotFound(t, id, err)
		_, err = s.Policies().Get(ctx, id)
		wantNotFound(t, id, err)
		_, err = s.Actions().Get(ctx, id)
		wantNotFound(t, id, err)
		_, err = s.Targets().Get(ctx, id, id)
		wantNotFound(t, id, err)
		must(t, s.Agents().Delete(ctx, id))
		must(t, s.Policies().Delete(ctx, id))
		must(t, s.Rollouts().Delete(ctx, id))
	}
}

func wantNotFound(t *testing.T, id string, err error) {
	t.Helper()
	if fleet.KindOf(err) != fleet.NotFound {
		t.Errorf("%.20q: error is %v (%s), want one of kind %s", id, err, fleet.KindOf(err), fleet.NotFound)
	}
}
