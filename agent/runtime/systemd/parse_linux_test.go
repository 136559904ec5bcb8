package systemd

import (
	"testing"
	"time"
)

func TestPropertiesThatSystemctlPrints(t *testing.T) {
	s := parseShow("Names=web.service site.service\nLoadState=loaded\nActiveState=active\nSubState=running\nJob=17\n" +
		"MainPID=42\nNRestarts=3\nResult=success\nExecMainStartTimestamp=Wed 2026-11-25 14:34:05 UTC\nExecMainCode=1\nExecMainStatus=7\n" +
		"ConditionResult=no\nConditionTimestamp=Wed 2026-11-25 14:34:05 UTC\nCanReload=yes\nNeedDaemonReload=yes\nFragmentPath=/etc/a=b\n")
	if s.pid != 42 || s.restarts != 3 || !s.job || !s.unmet || !s.canReload || !s.changed || len(s.names) != 2 || s.file != "/etc/a=b" ||
		!s.started.Equal(time.Date(2026, 11, 25, 14, 34, 5, 0, time.UTC)) || s.exitStatus != 7 {
		t.Errorf("read %+v", s)
	}
	// Of a unit that never ran, from a version that lacks some.
	s = parseShow("Names=web.service\nLoadState=not-found\nExecMainStartTimestamp=n/a\nConditionResult=no\nConditionTimestamp=\nJob=\n")
	if s.job || s.unmet || s.restarts != 0 || !s.started.IsZero() {
		t.Errorf("read %+v", s)
	}
}
