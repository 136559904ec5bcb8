package fleet

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// upgradesDocument is what a store has of an agent and of a component that were upgraded. Stores and
// filters know its names.
const upgradesDocument = `{"id":"a","type":"","active":false,"policy_id":"","access_api_key_id":"","access_api_key_hash":"","enrolled_at":"2026-01-02T03:04:05Z","version":"","component_upgrades":{"new":{"action_id":"act","target_version":"2.0.0"},"web":{"action_id":"act","target_version":"2.0.0","from_version":"1.0.0","upgrade_started_at":"2026-01-02T03:04:05Z","upgraded_at":"2026-01-02T04:04:05Z","upgrade_status":"failed","upgrade_details":{"target_version":"2.0.0","action_id":"act","state":"UPG_FAILED","metadata":{"error_msg":"no"}},"failed_versions":[{"version":"2.0.0","action_id":"act","reason":"no","at":"2026-01-02T03:04:05Z"}],"upgrade_by":"ops","upgrade_rollout":{"id":"r","name":"wave"},"upgrade_why":"why","upgrade_ended_at":"2026-01-02T04:04:05Z","upgrade_end_text":"end","upgrade_phases":[{"state":"sent","at":"2026-01-02T03:04:05Z","text":"text"}],"upgrade_moved_at":"2026-01-02T03:04:05Z","upgrade_unreported_since":"2026-01-02T03:04:05Z","upgrade_presumed":true,"upgrade_cancel_confirmed_at":"2026-01-02T04:04:05Z"}},"tags":null,"upgrade_started_at":"2026-01-02T03:04:05Z","upgraded_at":"2026-01-02T04:04:05Z","upgrade_status":"failed","upgrade_details":{"target_version":"2.0.0","action_id":"act","state":"UPG_FAILED","metadata":{"error_msg":"no"}},"upgrade_action_id":"act","upgrade_target":"2.0.0","upgrade_from":"1.0.0","upgrade_by":"ops","upgrade_rollout":{"id":"r","name":"wave"},"upgrade_why":"why","upgrade_ended_at":"2026-01-02T04:04:05Z","upgrade_end_text":"end","upgrade_phases":[{"state":"sent","at":"2026-01-02T03:04:05Z","text":"text"}],"upgrade_moved_at":"2026-01-02T03:04:05Z","upgrade_unreported_since":"2026-01-02T03:04:05Z","upgrade_presumed":true,"upgrade_cancel_confirmed_at":"2026-01-02T04:04:05Z","upgrade_rollback":true,"undoes":{"action_id":"before","to":"2.0.0","upgrade_by":"ops","upgrade_rollout":{"id":"r","name":"wave"},"upgrade_why":"why","upgrade_ended_at":"2026-01-02T04:04:05Z","upgrade_end_text":"end","upgrade_phases":[{"state":"sent","at":"2026-01-02T03:04:05Z","text":"text"}],"upgrade_moved_at":"2026-01-02T03:04:05Z","upgrade_unreported_since":"2026-01-02T03:04:05Z","upgrade_presumed":true,"upgrade_cancel_confirmed_at":"2026-01-02T04:04:05Z"},"failed_versions":[{"version":"2.0.0","action_id":"act","reason":"no","at":"2026-01-02T03:04:05Z"}],"upgrade_end_told":true}`

// The upgrades of an agent and of a component are one type, and have names of their own in the
// document.
func TestUpgradesAreStoredUnderTheirNames(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	later := at.Add(time.Hour)
	order := UpgradeLog{
		UpgradeBy: "ops", UpgradeRollout: &RolloutRef{ID: "r", Name: "wave"}, UpgradeWhy: "why", UpgradeEndedAt: &later, UpgradeEndText: "end",
		UpgradePhases: []Phase{{State: ProgressSent, At: at, Text: "text"}}, UpgradeMoved: &at, UpgradeUnreported: &at, UpgradePresumed: true, CancelConfirmedAt: &later,
	}
	details := &agentapi.UpgradeDetails{TargetVersion: "2.0.0", ActionID: "act", State: agentapi.UpgradeFailed, Metadata: agentapi.UpgradeMetadata{ErrorMsg: "no"}}
	failed := []FailedVersion{{Version: "2.0.0", ActionID: "act", Reason: "no", At: at}}
	a := Agent{
		ID: "a", EnrolledAt: at,
		Upgrade: Upgrade{
			UpgradeStartedAt: &at, UpgradedAt: &later, UpgradeStatus: UpgradeFailed, UpgradeDetails: details, UpgradeActionID: "act", UpgradeTo: "2.0.0", UpgradeFrom: "1.0.0",
			UpgradeLog: order, UpgradeRollback: true, Undoes: &UndoneUpgrade{ActionID: "before", To: "2.0.0", UpgradeLog: order}, FailedVersions: failed, UpgradeEndReported: true,
		},
		ComponentUpgrades: map[string]ComponentUpgrade{
			"new": {Upgrade: Upgrade{UpgradeActionID: "act", UpgradeTo: "2.0.0"}},
			"web": {Upgrade: Upgrade{UpgradeActionID: "act", UpgradeTo: "2.0.0", UpgradeFrom: "1.0.0", UpgradeStartedAt: &at, UpgradedAt: &later, UpgradeStatus: UpgradeFailed, UpgradeDetails: details, FailedVersions: failed, UpgradeLog: order}},
		},
	}
	doc, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if string(doc) != upgradesDocument {
		t.Errorf("the document is\n%s\nwant\n%s", doc, upgradesDocument)
	}
	if standard, err := json.Marshal(&a); err != nil || string(standard) != upgradesDocument {
		t.Errorf("encoding/json writes\n%s (%v)", standard, err)
	}
	read, err := DecodeAgent(upgradesDocument, 1)
	if err != nil {
		t.Fatal(err)
	}
	if doc, err := read.Encode(); err != nil || string(doc) != upgradesDocument {
		t.Errorf("what was read is written as\n%s (%v)", doc, err)
	}
}
