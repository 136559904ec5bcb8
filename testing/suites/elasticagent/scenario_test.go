package elasticagent

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/elasticpkg"
	"github.com/muster-fleet/muster/testing/kit/fakepkg"
)

// world is a server that trusts the key of Elastic's packages.
type world struct {
	*apptest.Server
	t         *testing.T
	publisher elasticpkg.Publisher
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{apptest.Start(t), t, elasticpkg.NewPublisher(t)}
	w.trust(w.publisher.PublicKey)
	return w
}

func (w *world) trust(key string) {
	w.t.Helper()
	if got := w.Admin(http.MethodPost, "/api/v1/publisher_keys", map[string]string{"public_key": key, "name": "Elastic"}); got.Status != http.StatusOK {
		w.t.Fatalf("the key: %s", got.Body)
	}
}

// push pushes an archive with what is beside it.
func (w *world) push(archive string) apptest.Answer {
	w.t.Helper()
	read := func(path string) []byte {
		b, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			w.t.Fatal(err)
		}
		return b
	}
	sum, _, _ := strings.Cut(string(read(archive+".sha512")), " ")
	got, err := w.Do(w.t.Context(), apptest.Request{
		Method: http.MethodPut, URL: w.AdminURL + "/api/v1/packages/" + filepath.Base(archive),
		Header: apptest.Headers("Authorization", "ApiKey "+w.AdminKey, "Muster-Sha512", sum, "Muster-Openpgp-Signature", base64.StdEncoding.EncodeToString(read(archive+".asc"))),
		Body:   read(archive),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return got
}

func (w *world) published(versions ...string) {
	w.t.Helper()
	for _, v := range versions {
		if got := w.push(w.publisher.Archive(w.t, w.t.TempDir(), v)); got.Status != http.StatusOK {
			w.t.Fatalf("push %s: %s", v, got.Body)
		}
	}
}

// enrolled returns an agent that has enrolled and checked in.
func (w *world) enrolled(host, version string) *Agent {
	w.t.Helper()
	a := New(w.AgentURL, w.Client, host, version)
	a.Source = "https://vendor.invalid/downloads" // until its policy names another
	a.PublisherKey = w.publisher.PublicKey
	if err := a.Enroll(w.t.Context(), w.Token); err != nil {
		w.t.Fatal(err)
	}
	apptest.Eventually(w.t, "its policy", func() string {
		w.report(a)
		if w.Fleet(a.ID).PolicyRev == 0 {
			return "it has none"
		}
		return ""
	})
	return a
}

// report sends a check-in, and returns when the server has handled it and parked the poll,
// which it then abandons.
func (w *world) report(a *Agent) {
	w.t.Helper()
	before := w.Fleet(a.ID)
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := a.Checkin(ctx)
		done <- err
	}()
	apptest.Eventually(w.t, "the check-in", func() string {
		got := w.Fleet(a.ID)
		if got.Last.At == nil || before.Last.At != nil && !got.Last.At.After(*before.Last.At) {
			return "it is not stored"
		}
		return ""
	})
	cancel()
	if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
		w.t.Fatal(err)
	}
}

// order orders an upgrade, and returns the action as the agent receives it.
func (w *world) order(a *Agent, version string) agentapi.Action {
	w.t.Helper()
	if got := w.Admin(http.MethodPost, "/api/fleet/agents/"+a.ID+"/upgrade", map[string]any{"version": version}); got.Status != http.StatusOK {
		w.t.Fatalf("the order: %s", got.Body)
	}
	return w.ordered(a)
}

// ordered returns the UPGRADE that the agent receives.
func (w *world) ordered(a *Agent) agentapi.Action {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), apptest.WaitLimit)
	defer cancel()
	for {
		actions, err := a.Checkin(ctx)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, action := range actions {
			if action.Type == agentapi.ActionUpgrade {
				return action
			}
		}
	}
}

func (w *world) agent(id string) adminapi.Agent {
	w.t.Helper()
	return apptest.Decode[adminapi.AgentItem](w.t, w.Admin(http.MethodGet, "/api/fleet/agents/"+id, nil)).Item
}

func (w *world) action(id string) adminapi.ActionStatus {
	w.t.Helper()
	for _, s := range apptest.Decode[adminapi.ActionStatusList](w.t, w.Admin(http.MethodGet, "/api/fleet/agents/action_status", nil)).Items {
		if s.ActionId == id {
			return s
		}
	}
	w.t.Fatalf("there is no action %s", id)
	return adminapi.ActionStatus{}
}

func TestElasticAgentIsUpgradedFromTheServer(t *testing.T) {
	w := newWorld(t)
	w.published("8.16.0")
	a := w.enrolled("db-1", "8.15.5")
	action := w.order(a, "8.16.0")
	if !strings.Contains(string(action.Data), `"version":"8.16.0"`) {
		t.Errorf("the action says %s", action.Data)
	}

	archive, err := a.Download(t.Context(), "8.16.0", "")
	if err != nil || len(archive) == 0 {
		t.Fatalf("the download: %v", err)
	}
	a.Phase(action, agentapi.UpgradeDownloading, agentapi.UpgradeMetadata{DownloadPercent: 1})
	w.report(a)
	if d := w.agent(a.ID).UpgradeDetails; d == nil || d.Metadata.DownloadPercent == nil || *d.Metadata.DownloadPercent != 100 {
		t.Errorf("after the download the details are %+v, want 100 %%", d)
	}

	// The new version acknowledges the action before its first check-in.
	a.Version = "8.16.0"
	if err := a.Ack(t.Context(), action.ID); err != nil {
		t.Fatal(err)
	}
	if got := w.agent(a.ID); got.UpgradedAt != nil || got.Status != fleet.StatusUpdating {
		t.Errorf("after the acknowledgement it is %s, upgraded at %v", got.Status, got.UpgradedAt)
	}
	if s := w.action(action.ID); s.NbAgentsAck != 1 || s.NbAgentsDone != 0 || s.Outcome != adminapi.INPROGRESS {
		t.Errorf("after the acknowledgement %d are done, %d acknowledged, outcome %s", s.NbAgentsDone, s.NbAgentsAck, s.Outcome)
	}
	a.Phase(action, agentapi.UpgradeWatching, agentapi.UpgradeMetadata{})
	w.report(a)
	if s := w.action(action.ID); s.NbAgentsDone != 0 {
		t.Errorf("while it is watched, %d are done", s.NbAgentsDone)
	}
	a.Details = nil
	w.report(a)
	if got := w.agent(a.ID); got.UpgradedAt == nil || got.Agent.Version != "8.16.0" || got.UpgradeStatus != nil || got.UpgradeDetails != nil {
		t.Errorf("at the end it runs %s, upgraded at %v, status %v, details %+v", got.Agent.Version, got.UpgradedAt, got.UpgradeStatus, got.UpgradeDetails)
	}
	if s := w.action(action.ID); s.NbAgentsDone != 1 || s.Outcome != adminapi.COMPLETE {
		t.Errorf("at the end %d are done, outcome %s", s.NbAgentsDone, s.Outcome)
	}
}

// The server's trust decides what is published, the agent's own key what is installed.
func TestElasticAgentRefusesAPackageThatItsOwnKeyHasNotSigned(t *testing.T) {
	w := newWorld(t)
	w.published("9.5.3")
	a := w.enrolled("db-1", "9.5.2")
	if _, err := a.Download(t.Context(), "9.5.3", ""); err != nil {
		t.Fatalf("with the key that signed it: %v", err)
	}
	a.PublisherKey = elasticpkg.NewPublisher(t).PublicKey
	action := w.order(a, "9.5.3")
	if err := a.Ack(t.Context(), action.ID); err != nil {
		t.Fatal(err)
	}
	archive, err := a.Download(t.Context(), "9.5.3", "")
	if err == nil || archive != nil {
		t.Fatalf("it took %d bytes, %v", len(archive), err)
	}
	a.Phase(action, agentapi.UpgradeFailed, agentapi.UpgradeMetadata{FailedState: agentapi.UpgradeDownloading, ErrorMsg: "failed verification of agent binary: " + err.Error()})
	w.report(a)
	got := w.agent(a.ID)
	if got.UpgradeStatus == nil || *got.UpgradeStatus != fleet.UpgradeFailed || got.Agent.Version != "9.5.2" || got.UpgradedAt != nil {
		t.Errorf("it runs %s, upgrade %v, upgraded at %v", got.Agent.Version, got.UpgradeStatus, got.UpgradedAt)
	}
	if got.FailedVersions != nil { // another package of the version may be signed rightly
		t.Errorf("failed are %+v", *got.FailedVersions)
	}
	if s := w.action(action.ID); s.NbAgentsFailed != 1 || len(s.LatestErrors) != 1 || !strings.Contains(s.LatestErrors[0].Error, "unknown entity") {
		t.Errorf("%d failed: %+v", s.NbAgentsFailed, s.LatestErrors)
	}
	a.AsksServer = true
	if _, err := a.Download(t.Context(), "9.5.3", ""); err != nil {
		t.Errorf("with the server's keys: %v", err)
	}
}

func TestElasticAgentRolledBackFromAnUpgradeOfItsHostNamesItsVersion(t *testing.T) {
	w := newWorld(t)
	a := w.enrolled("db-1", "9.5.2")
	a.Details = &agentapi.UpgradeDetails{TargetVersion: "9.5.4", State: agentapi.UpgradeRollback, Metadata: agentapi.UpgradeMetadata{Reason: "watch failed"}}
	w.report(a)
	got := w.agent(a.ID)
	if got.FailedVersions == nil || len(*got.FailedVersions) != 1 || (*got.FailedVersions)[0].Version != "9.5.4" || got.Progress == nil || got.Progress.Version != "9.5.4" {
		t.Errorf("failed are %+v, the progress is %+v", got.FailedVersions, got.Progress)
	}
}

func TestElasticAgentsApplyThePolicyOfAFreshInstallation(t *testing.T) {
	w := newWorld(t)
	for _, version := range []string{"8.16.6", "8.18.3", "8.18.4", "9.1.0", "9.5.2"} {
		a := New(w.AgentURL, w.Client, "db-"+version, version)
		a.SendsRevision = true
		if err := a.Enroll(t.Context(), w.Token); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), apptest.WaitLimit)
		_, err := a.Checkin(ctx) // it brings the policy
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if a.Status != "online" || a.PolicyRevision == 0 {
			t.Errorf("%s is %s with revision %d of its policy: %s", version, a.Status, a.PolicyRevision, a.Message)
		}
	}
}

func TestAcknowledgementReleasesThePollOfAnElasticAgent(t *testing.T) {
	w := newWorld(t)
	w.published("8.16.0")
	a := w.enrolled("db-1", "8.15.5")
	action := w.order(a, "8.16.0")
	a.Phase(action, agentapi.UpgradeDownloading, agentapi.UpgradeMetadata{})
	polled := make(chan error, 1)
	go func() {
		_, err := a.Checkin(t.Context())
		polled <- err
	}()
	apptest.Eventually(t, "the phase", func() string {
		if d := w.Fleet(a.ID).UpgradeDetails; d == nil || d.State != agentapi.UpgradeDownloading {
			return "it has not arrived"
		}
		return ""
	})
	apptest.Eventually(t, "the answer to the poll", func() string {
		// The first acknowledgement may come before the poll is parked.
		if err := a.Ack(t.Context(), action.ID); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-polled:
			if err != nil {
				t.Fatal(err)
			}
			return ""
		case <-time.After(50 * time.Millisecond):
			return "it is still parked"
		}
	})

	// So the failure that the acknowledgement did not mention arrives at once.
	a.Phase(action, agentapi.UpgradeFailed, agentapi.UpgradeMetadata{FailedState: agentapi.UpgradeDownloading, ErrorMsg: "unable to download: 404"})
	w.report(a)
	a.Details = nil
	w.report(a)
	if got := w.agent(a.ID); got.UpgradeStatus == nil || *got.UpgradeStatus != fleet.UpgradeFailed || got.UpgradedAt != nil {
		t.Errorf("its upgrade is %v, upgraded at %v; want failed", got.UpgradeStatus, got.UpgradedAt)
	}
	if s := w.action(action.ID); s.NbAgentsFailed != 1 || s.NbAgentsDone != 0 || s.Status != adminapi.FAILED {
		t.Errorf("%d failed, %d are done, status %s", s.NbAgentsFailed, s.NbAgentsDone, s.Status)
	}
}

func TestElasticAgentRollbackWithoutAReasonIsAFailure(t *testing.T) {
	w := newWorld(t)
	w.published("8.16.0")
	a := w.enrolled("db-1", "8.15.5")
	action := w.order(a, "8.16.0")
	a.Phase(action, agentapi.UpgradeExtracting, agentapi.UpgradeMetadata{})
	w.report(a)
	a.Phase(action, agentapi.UpgradeRollback, agentapi.UpgradeMetadata{})
	w.report(a)
	if err := a.Ack(t.Context(), action.ID); err != nil {
		t.Fatal(err)
	}
	a.Details = nil
	w.report(a)
	if got := w.agent(a.ID); got.UpgradeStatus == nil || *got.UpgradeStatus != fleet.UpgradeRolledBack || got.UpgradedAt != nil {
		t.Errorf("its upgrade is %v, upgraded at %v; want rolled_back", got.UpgradeStatus, got.UpgradedAt)
	}
	s := w.action(action.ID)
	if s.NbAgentsFailed != 1 || s.NbAgentsDone != 0 || len(s.LatestErrors) != 1 || !strings.Contains(s.LatestErrors[0].Error, "gave no reason") {
		t.Errorf("%d failed, %d are done: %+v", s.NbAgentsFailed, s.NbAgentsDone, s.LatestErrors)
	}
}

func TestOrderedRollbackOfAnElasticAgentIsItsSuccess(t *testing.T) {
	w := newWorld(t)
	w.published("9.5.2")
	a := w.enrolled("db-1", "9.5.0")
	up := w.order(a, "9.5.2")
	a.Version, a.Keeps = "9.5.2", []agentapi.Rollback{{Version: "9.5.0", ValidUntil: time.Now().Add(168 * time.Hour)}}
	a.Phase(up, agentapi.UpgradeWatching, agentapi.UpgradeMetadata{})
	w.report(a)
	a.Details = nil
	w.report(a)
	if got := w.Admin(http.MethodPost, "/api/fleet/agents/"+a.ID+"/rollback", nil); got.Status != http.StatusOK {
		t.Fatalf("the order: %s", got.Body)
	}
	back := w.ordered(a)
	if back.ID == up.ID || !strings.Contains(string(back.Data), `"rollback":true`) {
		t.Fatalf("the action is %s %s", back.ID, back.Data)
	}
	if err := a.Ack(t.Context(), back.ID); err != nil {
		t.Fatal(err)
	}
	a.GoingBack(back, a.Version)
	w.report(a)
	if got := w.agent(a.ID); got.Status != fleet.StatusUpdating {
		t.Errorf("before it has gone back it is %s", got.Status)
	}
	a.Version, a.Keeps = "9.5.0", nil
	w.report(a)
	w.report(a) // the report stays until the next upgrade
	if got := w.agent(a.ID); got.UpgradedAt == nil || got.UpgradeStatus != nil || got.FailedVersions != nil || got.Agent.Version != "9.5.0" {
		t.Errorf("it runs %s, upgraded at %v, status %v, failed %v", got.Agent.Version, got.UpgradedAt, got.UpgradeStatus, got.FailedVersions)
	}
	if s := w.action(back.ID); s.NbAgentsDone != 1 || s.NbAgentsFailed != 0 || s.Outcome != adminapi.COMPLETE {
		t.Errorf("%d are done, %d failed, outcome %s: %+v", s.NbAgentsDone, s.NbAgentsFailed, s.Outcome, s.LatestErrors)
	}
	if got := w.Admin(http.MethodPost, "/api/fleet/agents/"+a.ID+"/upgrade", map[string]any{"version": "9.5.2"}); got.Status != http.StatusOK {
		t.Errorf("the next upgrade is refused: %s", got.Body)
	}
}

// Agents before 8.12 report neither the phases of an upgrade nor a rollback.
func TestElasticAgentWithoutPhasesIsDoneOnlyWhenItsVersionRuns(t *testing.T) {
	w := newWorld(t)
	w.published("8.16.0")
	a, b := w.enrolled("db-1", "8.11.4"), w.enrolled("db-2", "8.11.4")
	action := w.order(a, "8.16.0")
	if err := a.Ack(t.Context(), action.ID); err != nil {
		t.Fatal(err)
	}
	w.report(a)
	if s := w.action(action.ID); s.NbAgentsAck != 1 || s.NbAgentsDone != 0 || s.Outcome != adminapi.INPROGRESS {
		t.Errorf("with the old version %d are done, %d acknowledged, outcome %s", s.NbAgentsDone, s.NbAgentsAck, s.Outcome)
	}
	a.Version = "8.16.0"
	w.report(a)
	if s := w.action(action.ID); s.NbAgentsDone != 1 || s.Outcome != adminapi.COMPLETE {
		t.Errorf("with the new version %d are done, outcome %s", s.NbAgentsDone, s.Outcome)
	}

	action = w.order(b, "8.16.0")
	b.Version = "8.16.0"
	if err := b.Ack(t.Context(), action.ID); err != nil {
		t.Fatal(err)
	}
	w.report(b)
	b.Version = "8.11.4"
	w.report(b)
	if s := w.action(action.ID); s.NbAgentsDone != 0 || s.NbAgentsFailed != 1 {
		t.Errorf("after an unreported rollback %d are done, %d failed", s.NbAgentsDone, s.NbAgentsFailed)
	}
}

func TestElasticAgentIsShownAsKibanaShowsIt(t *testing.T) {
	w := newWorld(t)
	a := w.enrolled("db-1", "8.15.5")
	a.Status, a.Message = "DEGRADED", "1 or more components are degraded"
	w.report(a)
	got := w.agent(a.ID)
	if got.Status != fleet.StatusDegraded || got.LastCheckinStatus == nil || *got.LastCheckinStatus != "degraded" {
		t.Errorf("DEGRADED is %s, last check-in %v", got.Status, got.LastCheckinStatus)
	}
	agent := got.LocalMetadata["elastic"].(map[string]any)["agent"].(map[string]any)
	if original, _ := agent["build.original"].(string); !strings.HasPrefix(original, "8.15.5 (build: ") || agent["build"] != nil {
		t.Errorf("the build is %v, %v", agent["build.original"], agent["build"])
	}
	if len(got.Components) != 1 || got.Components[0].Units == nil || (*got.Components[0].Units)[0].Type != "output" {
		t.Errorf("the components are %+v", got.Components)
	}
	var list adminapi.AgentList
	answer := w.Admin(http.MethodGet, "/api/fleet/agents?kuery=status:degraded%20and%20last_checkin_status:degraded", nil)
	if err := json.Unmarshal(answer.Body, &list); err != nil || len(list.Items) != 1 {
		t.Errorf("the query finds %s", answer.Body)
	}
}

func TestElasticPackagesAreServedWithoutCredentials(t *testing.T) {
	w := newWorld(t)
	archive := w.publisher.Archive(t, t.TempDir(), "8.16.0")
	body, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	if got := w.push(archive); got.Status != http.StatusOK {
		t.Fatalf("push: %s", got.Body)
	}
	file := filepath.Base(archive)
	for _, base := range []string{"/artifacts", "/downloads"} {
		for name, want := range map[string][]byte{file: body, file + ".sha512": nil, file + ".asc": nil} {
			got := w.Agents(http.MethodGet, base+"/beats/elastic-agent/"+name, "", nil)
			if got.Status != http.StatusOK || want != nil && !bytes.Equal(got.Body, want) {
				t.Errorf("%s of %s: %d with %d bytes", name, base, got.Status, len(got.Body))
			}
		}
		if got := w.Agents(http.MethodHead, base+"/beats/elastic-agent/"+file, "", nil); got.Status != http.StatusOK || len(got.Body) != 0 {
			t.Errorf("HEAD: %d with %d bytes", got.Status, len(got.Body))
		}
		part, err := w.Do(t.Context(), apptest.Request{Method: http.MethodGet, URL: w.AgentURL + base + "/beats/elastic-agent/" + file, Header: apptest.Headers("Range", "bytes=3-9")})
		if err != nil || part.Status != http.StatusPartialContent || !bytes.Equal(part.Body, body[3:10]) {
			t.Errorf("a range: %d %q, %v", part.Status, part.Body, err)
		}
	}
	for _, missing := range []string{"elastic-agent-9.9.9-linux-x86_64.tar.gz", file + ".minisig", file + ".asc.sha512", "x"} {
		if got := w.Agents(http.MethodGet, "/artifacts/beats/elastic-agent/"+missing, "", nil); got.Status != http.StatusNotFound {
			t.Errorf("%s: %d", missing, got.Status)
		}
	}
}

func TestAgentsGetOnlyPackagesOfTheirOwnMaker(t *testing.T) {
	w := newWorld(t)
	w.published("8.16.0")
	w.Publisher().Publish("1.1.0")
	elastic, muster := w.enrolled("db-1", "8.15.5"), w.Enroll("web-1", "1.0.0")
	for id, c := range map[string]struct{ version, why string }{
		elastic.ID: {"1.1.0", "is an Elastic Agent"}, muster.ID: {"8.16.0", "is Muster's agent"},
	} {
		got := w.Admin(http.MethodPost, "/api/fleet/agents/"+id+"/upgrade", map[string]any{"version": c.version, "force": true})
		// As in Kibana the call is accepted; the action fails with the reason and is not
		// delivered.
		s := w.action(*apptest.Decode[adminapi.UpgradeResponse](t, got).ActionId)
		if s.Status != "FAILED" || len(s.LatestErrors) != 1 || !strings.Contains(s.LatestErrors[0].Error, c.why) {
			t.Errorf("%s: the action is %+v, want a failure with %q", c.version, s, c.why)
		}
	}
	if got := w.Agents(http.MethodGet, "/artifacts/elastic-agent-8.16.0-linux-x86_64.tar.gz", muster.Key, nil); got.Status != http.StatusNotFound {
		t.Errorf("the path of Muster's packages has Elastic's: %d", got.Status)
	}
	if got := w.Agents(http.MethodGet, "/artifacts/beats/elastic-agent/muster-agent-1.1.0-linux-amd64.tar.gz", "", nil); got.Status != http.StatusNotFound {
		t.Errorf("the path of Elastic's packages has Muster's: %d", got.Status)
	}
	// Hosts do not pin the key of Elastic.
	info := w.Admin(http.MethodGet, "/api/v1/server", nil)
	if info.Status != http.StatusOK || strings.Contains(string(info.Body), "PGP") {
		t.Errorf("the server names %s", info.Body)
	}
}

func TestUpgradeableAgentsAreThoseBelowTheNewestVersionForThem(t *testing.T) {
	w := newWorld(t)
	w.published("8.16.0")
	w.Publisher().Publish("1.1.0")
	w.enrolled("elastic-old", "8.15.5")
	w.enrolled("elastic-new", "8.16.0")
	w.Enroll("muster-old", "1.0.0")
	w.Enroll("muster-new", "1.1.0")
	var hosts []string
	for _, a := range apptest.Decode[adminapi.AgentList](t, w.Admin(http.MethodGet, "/api/fleet/agents?showUpgradeable=true&sortField=local_metadata.host.hostname&sortOrder=asc", nil)).Items {
		hosts = append(hosts, a.LocalMetadata["host"].(map[string]any)["hostname"].(string))
	}
	if got := strings.Join(hosts, " "); got != "elastic-old muster-old" {
		t.Errorf("upgradeable are %q", got)
	}
}

func TestOpenPGPKeyIsServedToAgents(t *testing.T) {
	s := apptest.Start(t)
	const path = "/api/agents/upgrades/8.15.5/pgp-public-key"
	if got := s.Agents(http.MethodGet, path, "", nil); got.Status != http.StatusNotFound {
		t.Errorf("without a key: %d", got.Status)
	}
	w := &world{s, t, elasticpkg.NewPublisher(t)}
	second := elasticpkg.NewPublisher(t)
	w.trust(w.publisher.PublicKey)
	w.trust(second.PublicKey)
	w.trust(second.PublicKey) // changes nothing
	w.publisher = second
	w.published("8.16.0-SNAPSHOT", "8.17.0+build202411051234")
	a := w.enrolled("db-1", "8.15.5")
	a.PublisherKey, a.AsksServer = elasticpkg.NewPublisher(t).PublicKey, true // it has not signed them
	for _, version := range []string{"8.16.0-SNAPSHOT", "8.17.0+build202411051234"} {
		if _, err := a.Download(t.Context(), version, w.AgentURL+"/downloads/"); err != nil {
			t.Errorf("%s signed with the second key: %v", version, err)
		}
	}
	if got := s.Agents(http.MethodGet, "/api/agents/upgrades/latest/pgp-public-key", "", nil); got.Status != http.StatusBadRequest {
		t.Errorf("a version that is none: %d", got.Status)
	}
	if got := w.Admin(http.MethodDelete, "/api/v1/publisher_keys/"+second.KeyID(), nil); got.Status != http.StatusOK {
		t.Errorf("removal of the key: %s", got.Body)
	}
	if _, err := a.Download(t.Context(), "8.16.0-SNAPSHOT", ""); err == nil {
		t.Error("a package of the removed key is verified by the key that is left")
	}
}

func TestElasticPackagesThatAgentsWouldRefuseAreRefused(t *testing.T) {
	w := newWorld(t)
	const name = "elastic-agent-8.16.0-linux-x86_64"
	const file = name + ".tar.gz"
	sound := elasticpkg.Entries(name, "8.16.0")
	with := func(more ...fakepkg.Entry) []fakepkg.Entry {
		return append(append([]fakepkg.Entry{}, sound...), more...)
	}
	for what, c := range map[string]struct {
		archive func(dir string) string
		why     string
	}{
		"another key": {func(dir string) string { return elasticpkg.NewPublisher(t).Archive(t, dir, "8.16.0") }, "a key that the server does not know"},
		"no signature": {func(dir string) string {
			path := w.publisher.Archive(t, dir, "8.16.0")
			remove(t, path+".asc")
			return path
		}, "Muster-Openpgp-Signature"},
		"no digest": {func(dir string) string {
			path := w.publisher.Archive(t, dir, "8.16.0")
			remove(t, path+".sha512")
			return path
		}, "128 hexadecimal digits"},
		"changed after it was signed": {func(dir string) string {
			path := w.publisher.Archive(t, dir, "8.16.0")
			fakepkg.FlipBit(t, path)
			return path
		}, "was changed or did not arrive whole"},
		"a signature of other bytes": {func(dir string) string {
			path := w.publisher.Archive(t, dir, "8.16.0")
			other := w.publisher.Archive(t, t.TempDir(), "8.17.0")
			b, err := os.ReadFile(other + ".asc")
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path+".asc", b, 0o600); err != nil {
				t.Fatal(err)
			}
			return path
		}, ".asc: "},
		"renamed": {func(dir string) string {
			return w.publisher.Write(t, dir, "elastic-agent-8.17.0-linux-x86_64.tar.gz", sound)
		}, "agents look for them in elastic-agent-8.17.0-linux-x86_64"},
		"another version": {func(dir string) string { return w.publisher.Write(t, dir, file, elasticpkg.Entries(name, "8.15.5")) }, "by its manifest the package is version 8.15.5"},
		"a snapshot": {func(dir string) string {
			return w.publisher.Write(t, dir, file, elasticpkg.Entries(name, "8.16.0-SNAPSHOT"))
		}, "version 8.16.0-SNAPSHOT"},
		"Muster's name for it": {func(dir string) string {
			return w.publisher.Write(t, dir, "elastic-agent-8.16.0-linux-amd64.tar.gz", sound)
		}, "want Elastic's own name"},
		"zip for linux": {func(dir string) string { return w.publisher.Write(t, dir, name+".zip", sound) }, "are tar.gz files"},
		"a link in a folder": {func(dir string) string {
			return w.publisher.Write(t, dir, file, with(fakepkg.Entry{Name: name + "/data/link", Kind: fakepkg.Symlink, Link: "/etc"}))
		}, "is a symbolic link"},
		"a path that climbs": {func(dir string) string {
			return w.publisher.Write(t, dir, file, with(fakepkg.Entry{Name: name + "/../../evil", Body: "x"}))
		}, "leads out of the package"},
		"a bomb": {func(dir string) string {
			return w.publisher.Write(t, dir, file, with(fakepkg.Entry{Name: name + "/data/zeros", Zeros: 18 << 20}))
		}, "unpacks to too much"},
		"a program for another system": {func(dir string) string {
			return w.publisher.Write(t, dir, file, with(fakepkg.Entry{Name: name + "/data/elastic-agent-1c8f0e/elastic-agent.exe", Body: fakepkg.Program("windows", "amd64"), Mode: 0o755}))
		}, "its program is for windows/amd64"},
	} {
		t.Run(what, func(t *testing.T) {
			got := w.push(c.archive(t.TempDir()))
			if got.Status != http.StatusBadRequest || !strings.Contains(got.ErrorBody().Message, c.why) {
				t.Errorf("%d %s, want %q", got.Status, got.Body, c.why)
			}
		})
	}
	if list := apptest.Decode[adminapi.PackageList](t, w.Admin(http.MethodGet, "/api/v1/packages", nil)); len(list.Items) != 0 {
		t.Errorf("published are %+v", list.Items)
	}
	// The package without a defect, twice.
	archive := w.publisher.Write(t, t.TempDir(), file, sound)
	for range 2 {
		got := apptest.Decode[adminapi.PackageItem](t, w.push(archive)).Item
		if got.Maker == nil || *got.Maker != adminapi.MakerElastic || got.Version != "8.16.0" || got.Os != "linux" || got.Arch != "amd64" || got.KeyId != w.publisher.KeyID() || got.Signed != nil {
			t.Errorf("published is %+v", got)
		}
	}
}

func TestElasticsNamesOfPlatformsAreKnown(t *testing.T) {
	w := newWorld(t)
	for platform, want := range map[string]string{
		"linux-x86_64.tar.gz": "linux/amd64", "linux-arm64.tar.gz": "linux/arm64", "darwin-x86_64.tar.gz": "darwin/amd64",
		"darwin-aarch64.tar.gz": "darwin/arm64", "windows-x86_64.zip": "windows/amd64",
	} {
		file := "elastic-agent-8.16.0-" + platform
		top := strings.TrimSuffix(strings.TrimSuffix(file, ".tar.gz"), ".zip")
		got := w.push(w.publisher.Write(t, t.TempDir(), file, elasticpkg.Entries(top, "8.16.0")))
		if got.Status != http.StatusOK {
			t.Errorf("%s: %s", file, got.Body)
			continue
		}
		if p := apptest.Decode[adminapi.PackageItem](t, got).Item; p.Os+"/"+p.Arch != want || p.File != file {
			t.Errorf("%s is %s for %s/%s", file, p.File, p.Os, p.Arch)
		}
	}
}

func TestInvalidOpenPGPKeysAreRefused(t *testing.T) {
	s := apptest.Start(t)
	one := elasticpkg.NewPublisher(t).PublicKey
	for what, key := range map[string]string{
		"private": "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nxcFGBA\n-----END PGP PRIVATE KEY BLOCK-----\n", "half": one[:len(one)/2],
		"not one": "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\naGVsbG8=\n-----END PGP PUBLIC KEY BLOCK-----\n", "long": one + strings.Repeat("x", 70_000),
	} {
		got := s.Admin(http.MethodPost, "/api/v1/publisher_keys", map[string]string{"public_key": key, "name": what})
		if got.Status != http.StatusBadRequest || !strings.Contains(got.ErrorBody().Message, "body.public_key") {
			t.Errorf("%s: %d %s", what, got.Status, got.Body)
		}
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}
