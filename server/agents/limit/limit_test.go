package limit

import (
	"runtime/debug"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"pgregory.net/rapid"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

func TestDeriveFromTheMachine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		machine Machine
		config  Config
		want    Limits // fields that are 0 are not compared
	}{
		{
			name:    "two cores and 20,000 files hold 19,000 agents",
			machine: Machine{Cores: 2, Memory: 24 * gib, Descriptors: 20_000},
			want:    Limits{Agents: 19_216, Handshakes: 72, HandshakesPerSecond: 2830, Checkins: 32, Reports: 128, Enrollments: 128, Downloads: 400, Waiting: 19_216, BodyBytes: 1536 * mib, MemoryBytes: 24 * gib},
		},
		{
			name:    "a gigabyte without a limit of files is the memory's share",
			machine: Machine{Cores: 1, Memory: gib},
			want:    Limits{Agents: 40_960, Handshakes: 36, Checkins: 16, Downloads: 1024, Waiting: 2048, BodyBytes: 64 * mib},
		},
		{
			name:    "goroutines that wait take more memory",
			machine: Machine{Cores: 1, Memory: gib, Blocking: true},
			want:    Limits{Agents: 9216},
		},
		{
			name:    "a shell's limit of files leaves the server its own",
			machine: Machine{Cores: 4, Memory: 8 * gib, Descriptors: 1024},
			want:    Limits{Agents: 620, Downloads: 20},
		},
		{
			name:    "very few files are shared by halves",
			machine: Machine{Cores: 1, Memory: gib, Descriptors: 256},
			want:    Limits{Agents: 128, Downloads: 8},
		},
		{
			name:    "the smallest container",
			machine: Machine{Cores: 1, Memory: 64 * mib, Descriptors: 1 << 20},
			want:    Limits{Agents: 16, Handshakes: 36, Checkins: 16, Enrollments: 64, Waiting: 64, BodyBytes: 32 * mib},
		},
		{
			name:    "a machine that says nothing",
			machine: Machine{},
			want:    Limits{Agents: 40_960, HandshakesPerSecond: 1415, MemoryBytes: gib},
		},
		{
			name:    "slow handshakes are fewer",
			machine: Machine{Cores: 1, Memory: gib, Handshake: 3 * time.Millisecond},
			want:    Limits{HandshakesPerSecond: 250, Handshakes: 36},
		},
		{
			name:    "what is asked for holds",
			machine: Machine{Cores: 2, Memory: 24 * gib, Descriptors: 20_000},
			config: Config{
				MaxAgents: 100, MaxHandshakes: 8, HandshakesPerSecond: 50, MaxCheckins: 3, MaxReports: 4, MaxEnrollments: 5, MaxDownloads: 6, MemoryBytes: 512 * mib,
			},
			want: Limits{Agents: 100, Handshakes: 8, HandshakesPerSecond: 50, Checkins: 3, Reports: 4, Enrollments: 5, Downloads: 6, BodyBytes: 32 * mib, MemoryBytes: 512 * mib},
		},
		{
			name:    "more downloads take files from agents",
			machine: Machine{Cores: 2, Memory: 24 * gib, Descriptors: 20_000},
			config:  Config{MaxDownloads: 1000},
			want:    Limits{Agents: 18_616, Downloads: 1000},
		},
	} {
		got, err := Derive(c.machine, c.config)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for _, f := range []struct {
			name      string
			got, want int64
		}{
			{"agents", int64(got.Agents), int64(c.want.Agents)},
			{"handshakes", int64(got.Handshakes), int64(c.want.Handshakes)},
			{"handshakes a second", int64(got.HandshakesPerSecond), int64(c.want.HandshakesPerSecond)},
			{"check-ins", int64(got.Checkins), int64(c.want.Checkins)},
			{"reports", int64(got.Reports), int64(c.want.Reports)},
			{"enrolments", int64(got.Enrollments), int64(c.want.Enrollments)},
			{"downloads", int64(got.Downloads), int64(c.want.Downloads)},
			{"waiting", int64(got.Waiting), int64(c.want.Waiting)},
			{"bytes of bodies", got.BodyBytes, c.want.BodyBytes},
			{"bytes of memory", got.MemoryBytes, c.want.MemoryBytes},
		} {
			if f.want != 0 && f.got != f.want {
				t.Errorf("%s: %s are %d, want %d", c.name, f.name, f.got, f.want)
			}
		}
	}
}

// For every machine, all limits are above zero, and agents and downloads leave descriptors
// for the server itself.
func TestDeriveGivesUsableLimitsForEveryMachine(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := Machine{
			Cores: rapid.IntRange(0, 512).Draw(t, "cores"), Memory: rapid.Int64Range(0, 16<<40).Draw(t, "memory"),
			Descriptors: rapid.OneOf(rapid.Just(0), rapid.IntRange(128, 1<<22)).Draw(t, "descriptors"),
			Handshake:   time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "handshake")), Blocking: rapid.Bool().Draw(t, "blocking"),
		}
		l, err := Derive(m, Config{})
		if err != nil {
			t.Fatal(err)
		}
		if l.Agents < 16 || l.Handshakes < 8 || l.HandshakesPerSecond < 1 || l.Checkins < 8 || l.Reports < 8 || l.Enrollments < 8 || l.Downloads < 8 || l.Waiting < 64 || l.BodyBytes < 20*mib {
			t.Errorf("%+v gives %+v", m, l)
		}
		if m.Descriptors > 0 && l.Agents > m.Descriptors-min(m.Descriptors/2, l.Downloads+otherDescriptors) {
			t.Errorf("%+v leaves too few files: %+v", m, l)
		}
	})
}

func TestMoreAgentsThanDescriptorsAreRefused(t *testing.T) {
	t.Parallel()
	_, err := Derive(Machine{Cores: 2, Memory: 24 * gib, Descriptors: 20_000}, Config{MaxAgents: 20_000})
	if err == nil || !strings.HasPrefix(err.Error(), "limits.max_agents: is 20000") || !strings.Contains(err.Error(), "19216") || !strings.Contains(err.Error(), "LimitNOFILE") {
		t.Errorf("the error is %v", err)
	}
}

func TestConfigErrorsNameTheKey(t *testing.T) {
	t.Parallel()
	for key, c := range map[string]Config{
		"max_agents": {MaxAgents: -1}, "max_handshakes": {MaxHandshakes: -1}, "handshakes_per_second": {HandshakesPerSecond: -5},
		"max_checkins": {MaxCheckins: -1}, "max_reports": {MaxReports: -1}, "max_enrollments": {MaxEnrollments: -1}, "max_downloads": {MaxDownloads: -1},
		"memory_bytes": {MemoryBytes: 1000},
	} {
		var named []string
		c.Check(func(k, _ string, _ ...any) { named = append(named, k) })
		if len(named) != 1 || named[0] != "limits."+key {
			t.Errorf("%+v names %v", c, named)
		}
	}
	Config{}.Check(func(key, _ string, _ ...any) { t.Errorf("the empty configuration is bad: %s", key) })
}

func TestMemoryIsTheSmallestLimit(t *testing.T) {
	t.Parallel()
	const meminfo = "MemTotal:       25165824 kB\nMemFree:        1 kB\n"
	for _, c := range []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"a machine", map[string]string{"proc/meminfo": meminfo}, 24 * gib},
		{"a container sees its own group as the top", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "536870912\n",
		}, 512 * mib},
		{"a unit in a slice that has less", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/system.slice/muster.service\n",
			"sys/fs/cgroup/system.slice/muster.service/memory.max": "2147483648\n", "sys/fs/cgroup/system.slice/memory.max": "1073741824\n",
		}, gib},
		{"no limit", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/system.slice/muster.service\n", "sys/fs/cgroup/system.slice/muster.service/memory.max": "max\n",
		}, 24 * gib},
		{"the path is the host's, the files are the container's", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/docker/abc\n", "sys/fs/cgroup/memory.max": "1073741824\n",
		}, gib},
		{"the old generation", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "9:name=systemd:/\n4:cpu,memory:/docker/abc\n0::/\n",
			"sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes": "268435456\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, 256 * mib},
		{"files that say nothing of use", map[string]string{"proc/meminfo": "MemTotal: much\n", "proc/self/cgroup": "nonsense\n0::\n", "sys/fs/cgroup/memory.max": ""}, 0},
		{"another system", nil, 0},
	} {
		files := fstest.MapFS{}
		for name, text := range c.files {
			files[name] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := memory(files); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestThisMachineHasKnownResources(t *testing.T) {
	t.Parallel()
	m := ThisMachine()
	if m.Cores < 1 {
		t.Errorf("it has %d cores", m.Cores)
	}
	if !m.Blocking && (m.Memory < minMemory || m.Descriptors < 64) { // Linux reports both
		t.Errorf("it has %+v", m)
	}
}

// Not parallel: it sets the memory limit of the whole process.
func TestMemoryLimitIsSetUnlessTheEnvironmentSetsIt(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	for _, c := range []struct {
		memory int64
		env    string
		want   int64
	}{
		{10 * gib, "set", before},
		{0, "", before},
		{10 * gib, "", 9 * gib},
	} {
		SetMemoryLimit(c.memory, func(string) string { return c.env })
		if got := debug.SetMemoryLimit(-1); got != c.want {
			t.Errorf("%+v: GOMEMLIMIT is %d", c, got)
		}
	}
}
