package cli

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"gopkg.in/yaml.v3"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/group"
	"github.com/muster-fleet/muster/server/rollout/rollouttest"
)

func parsed(t *testing.T, text string) (fleet.Plan, error) {
	t.Helper()
	f := newPlanFile("plan.yaml")
	err := f.parse([]byte(text), &f.plan)
	return f.plan, err
}

func TestPlanFileValuesAreReadByFieldType(t *testing.T) {
	p, err := parsed(t, `
name: 7
version: 1.10
select: { labels: { ring: [1, 2], os: [linux] } }
strategy: { kind: all_at_once, deadline: 2026-12-24T18:00:00+01:00, batch_percent: 5, force_continue: yes }
failure: { count: 0 }
pace: { soak: 90s, windows: [{ from: 22:00, to: 04:00 }] }
health:
`)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("a version is a string", func(t *testing.T) {
		if p.Version != "1.10" || p.Name != "7" {
			t.Errorf("it is %q, called %q", p.Version, p.Name)
		}
	})
	t.Run("a label value is a string", func(t *testing.T) {
		if !slices.Equal(p.Select.Labels["ring"], []string{"1", "2"}) {
			t.Errorf("they are %q", p.Select.Labels["ring"])
		}
	})
	t.Run("zero failures is not the default", func(t *testing.T) {
		if p.Failure.Count == nil || *p.Failure.Count != 0 {
			t.Errorf("it is %v", p.Failure.Count)
		}
	})
	t.Run("times and durations", func(t *testing.T) {
		if p.Strategy.Deadline == nil || !p.Strategy.Deadline.Equal(time.Date(2026, 12, 24, 17, 0, 0, 0, time.UTC)) || p.Pace.Soak.D() != 90*time.Second {
			t.Errorf("they are %v and %v", p.Strategy.Deadline, p.Pace.Soak)
		}
		if w := p.Pace.Windows[0]; w.From != "22:00" || w.To != "04:00" {
			t.Errorf("the window is %+v", w)
		}
	})
	t.Run("yes is true", func(t *testing.T) {
		if !p.Strategy.ForceContinue {
			t.Error("yes was read as false")
		}
	})
}

func TestAZeroThatStandsForAnAbsentValueIsRefused(t *testing.T) {
	for _, n := range rollouttest.PlanNumbers() { // JSON is YAML
		_, err := parsed(t, n.JSON)
		if refused := err != nil && strings.HasPrefix(err.Error(), "plan.yaml:1: "+n.Path+" is 0"); refused != (n.Zero == "refused") || err != nil && !refused {
			t.Errorf("%s is %s: %v", n.JSON, n.Zero, err)
		}
	}
	t.Run("in flags", func(t *testing.T) {
		var p planFlags
		cmd := &cobra.Command{Use: "create"}
		p.register(cmd.Flags())
		// 0 of these means 0: no failure pauses, the first one does, none is retried, nothing is waited for.
		allowed := []string{"max-failures", "max-failure-percent", "retries", "soak"}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !slices.Contains([]string{"int", "float64", "duration"}, f.Value.Type()) {
				return
			}
			_, err := withFlags(t, "--version", "1.1.0", "--all", "--"+f.Name, "0")
			if refused := err != nil && strings.HasPrefix(err.Error(), "--"+f.Name+" is 0"); refused == slices.Contains(allowed, f.Name) || err != nil && !refused {
				t.Errorf("--%s 0: %v", f.Name, err)
			}
		})
	})
}

func TestPlanFileErrorsNameTheLine(t *testing.T) {
	for text, says := range map[string]string{
		"":                      "plan.yaml: is empty: `muster rollouts example`",
		"name: x\n---\nname: y": "more than one document",
		"- a":                   "plan.yaml:1: the plan is not a mapping, want keys such as name, ",
		"name: x\nverzion: 1":   "plan.yaml:2: verzion is not a known key, want one of name, description,",
		"name: x\nname: y":      "plan.yaml:2: name is given twice",
		"name: [x]":             "plan.yaml:1: name is a mapping or a list, want a text",
		"strategy:\n  knid: x":  "plan.yaml:2: strategy.knid is not a known key, want one of kind, ",
		"limits:\n  per:\n  - label: site\n    max: many": `plan.yaml:4: limits.per[0].max is "many", want a whole number`,
		"limits: { max_parallel: '5' }":                   `limits.max_parallel is "5", want a whole number`,
		"limits: { max_parallel: 1.5 }":                   `limits.max_parallel is "1.5", want a whole number`,
		"select: { policies: web }":                       "plan.yaml:1: select.policies is not a list, want one such as [a, b]",
		"select: { labels: { site: fra } }":               "select.labels.site is not a list",
		"select: { all: 1 }":                              `select.all is "1", want true or false`,
		"pace:\n  soak: soon":                             `plan.yaml:2: pace.soak is "soon", want a duration such as 10m`,
		"pace: { soak: 10 }":                              `pace.soak is "10", want a duration such as 10m`,
		"strategy: { deadline: tomorrow }":                "want a time such as 2026-01-31T12:00:00Z",
		"select: &s { all: true }\nstrategy: *s":          "plan.yaml:2: strategy is a YAML alias: write the value out",
		"name: [":                                         "plan.yaml:1: is not YAML: did not find",
		"name: \"x":                                       "plan.yaml: is not YAML: found unexpected end",
		"failure:\n  percent: NaN%":                       `failure.percent is "NaN%", want a number`,
		"failure: { percent: .inf }":                      `failure.percent is ".inf", want a number`,
		"strategy: rolling":                               "strategy is not a mapping, want keys such as kind, ",
		"name: [x]\nlimits:\n  max_parallel: many\n":      "plan.yaml:1: name is a mapping or a list, want a text\nplan.yaml:3: limits.max_parallel is \"many\", want a whole number",
	} {
		if _, err := parsed(t, text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q gives %v\nwant %q", text, err, says)
		}
	}
}

func TestNetworkErrorsSayWhatToDo(t *testing.T) {
	server := serverAddress{URL: "https://fleet:8221"}
	for _, c := range []struct {
		err  error
		want string
	}{
		{context.DeadlineExceeded, "https://fleet:8221 did not answer within 1m0s: try again"},
		{&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}, "https://fleet:8221 cannot be reached: the connection timed out: check the address"},
		{x509.UnknownAuthorityError{}, "this machine does not know the CA of https://fleet:8221: pass --ca-pin"},
		{x509.HostnameError{Certificate: &x509.Certificate{DNSNames: []string{"muster"}, IPAddresses: []net.IP{net.IPv4(10, 0, 0, 1)}}, Host: "fleet"}, "is for muster, 10.0.0.1, not for fleet"},
		{x509.CertificateInvalidError{Reason: x509.Expired}, "is not valid now: check the clock"},
		{tls.RecordHeaderError{}, "does not speak TLS: check the port"},
		{&net.DNSError{Name: "fleet", IsNotFound: true}, "no host has the name fleet: check --url"},
	} {
		got := server.explain(&url.Error{Op: "Get", URL: server.URL, Err: c.err}).Error()
		if !strings.Contains(got, c.want) || strings.Contains(got, "x509") || strings.Contains(got, "context") {
			t.Errorf("%v becomes %q, want %q", c.err, got, c.want)
		}
	}
}

func TestTableRowsAreOneLine(t *testing.T) {
	var out strings.Builder
	table(&out, "A\tB", func(add func(...any)) { add("two\nlines\tand a tab", strings.Repeat("ä", 500)) })
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[1], "two lines and a tab ") || utf8.RuneCountInString(lines[1]) > 150 || !strings.HasSuffix(lines[1], "ä…") {
		t.Errorf("the table is %q", out.String())
	}
	if want := "two lines and a tab, b: " + strings.Repeat("ä", 500); lines[2] != want {
		t.Errorf("below the table is %q, want the whole text", lines[2])
	}
}

func TestLocateAddsTheLineOfTheRefusedField(t *testing.T) {
	f := newPlanFile("plan.yaml")
	if err := f.parse([]byte("name: x\nstrategy:\n  kind: canary\n  canary:\n    size: -1\nlimits:\n  per:\n  - label: site\n    max: 0\n"), &f.plan); err != nil {
		t.Fatal(err)
	}
	for message, want := range map[string]string{
		"[request body.plan.strategy.canary.size]: is -1":                               "plan.yaml:5: strategy.canary.size: is -1",
		"[request body.plan.limits.per[0].max]: is 0":                                   "plan.yaml:9: limits.per[0].max: is 0",
		"[request body.plan.select]: is empty":                                          "plan.yaml:1: select: is empty", // not in the file
		"[request body.plan]: is odd":                                                   "plan.yaml:1: the plan: is odd",
		"rollout r1 has the policy web":                                                 "rollout r1 has the policy web",
		"[request body.why]: has 3000 bytes":                                            "why: has 3000 bytes",
		"[request body.plan.name]: is odd\n[request body.plan.limits.per[0].max]: is 0": "plan.yaml:1: name: is odd\nplan.limits.per[0].max: is 0",
	} {
		if got := f.locate(refuse(400, message, nil)).Error(); got != want {
			t.Errorf("%s becomes %q, want %q", message, got, want)
		}
	}
	if got := (&planFile{}).locate(refuse(400, "[request body.plan.name]: is missing", nil)).Error(); got != "plan.name: is missing" {
		t.Errorf("without a file it becomes %q", got)
	}
}

// withFlags returns the plan of `muster rollouts create` with these flags.
func withFlags(t *testing.T, args ...string) (fleet.Plan, error) {
	t.Helper()
	var p planFlags
	cmd := &cobra.Command{Use: "create"}
	p.register(cmd.Flags())
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	f, err := p.plan(cmd)
	return f.plan, err
}

func TestPlanFlagsDescribeAPlan(t *testing.T) {
	count, percent := 0, 2.5
	for _, row := range []struct {
		args string
		want fleet.Plan
	}{
		{"--version 1.1.0 --all", fleet.Plan{Name: "upgrade to 1.1.0", Version: "1.1.0", Select: fleet.Selector{All: true}, Strategy: fleet.Strategy{Kind: fleet.Rolling}}},
		{
			"--component web --version 2.4.0 --all --away exclude --patience 20m",
			fleet.Plan{Name: "upgrade to web 2.4.0", Component: "web", Version: "2.4.0", Select: fleet.Selector{All: true}, Strategy: fleet.Strategy{Kind: fleet.LockstepStrategy, Away: fleet.AwayExclude, Patience: fleet.Duration(20 * time.Minute)}},
		},
		{"--component web --version 2.4.0 --all", fleet.Plan{Name: "upgrade to web 2.4.0", Component: "web", Version: "2.4.0", Select: fleet.Selector{All: true}, Strategy: fleet.Strategy{Kind: fleet.Rolling}}},
		{
			"--name x --version 1.1.0 --policy web,db --label site=fra --label site=ams --label os=linux --exclude tag:frozen=true --exclude-agents a --agents b,c",
			fleet.Plan{Name: "x", Version: "1.1.0", Strategy: fleet.Strategy{Kind: fleet.Rolling}, Select: fleet.Selector{
				Policies: []string{"web", "db"}, Agents: []string{"b", "c"}, ExcludeAgents: []string{"a"},
				Labels: map[string][]string{"site": {"fra", "ams"}, "os": {"linux"}}, Exclude: map[string][]string{"tag:frozen": {"true"}},
			}},
		},
		{
			"--version 1.1.0 --kuery tags:prod --policy web",
			fleet.Plan{Name: "upgrade to 1.1.0", Version: "1.1.0", Strategy: fleet.Strategy{Kind: fleet.Rolling}, Select: fleet.Selector{Kuery: "tags:prod", Policies: []string{"web"}}},
		},
		{
			"--version 1.1.0 --canary 5 --canary-approval --batch-size 50",
			fleet.Plan{Name: "upgrade to 1.1.0", Version: "1.1.0", Strategy: fleet.Strategy{Kind: fleet.Canary, BatchSize: 50, Canary: &fleet.CanaryRule{Size: 5, Approval: true}}},
		},
		{
			"--version 1.1.0 --canary 2.5% --canary-pick stratified --canary-over os,site --rings 0,1 --ring-by stage --force-rings",
			fleet.Plan{Name: "upgrade to 1.1.0", Version: "1.1.0", Strategy: fleet.Strategy{
				Kind: fleet.Rings, Canary: &fleet.CanaryRule{Percent: 2.5, Pick: fleet.PickStratified, Over: []string{"os", "site"}}, Rings: &fleet.RingRule{By: "stage", Only: []int{0, 1}, Force: true},
			}},
		},
		{
			"--profile web --upgrade-id 2026-11 --strategy all_at_once --max-parallel 9 --max-per site=5 --max-failures 0 --max-failure-percent 2.5 --retries 2 --health-wait 5m --soak 1h --pause-on-success --emergency --join",
			fleet.Plan{
				Name: "web 2026-11", Profile: "web", UpgradeID: "2026-11", LateJoiners: fleet.LateJoin, Strategy: fleet.Strategy{Kind: fleet.AllAtOnce},
				Limits:  fleet.Limits{MaxParallel: 9, Per: []fleet.LabelLimit{{Label: "site", Max: 5}}},
				Failure: fleet.FailureRule{Count: &count, Percent: &percent, Retries: 2},
				Health:  fleet.HealthRule{Wait: fleet.Duration(5 * time.Minute)},
				Pace:    fleet.Pace{Soak: fleet.Duration(time.Hour), PauseOnSuccess: true, Emergency: true},
			},
		},
		{
			"--version 1.1.0 --strategy all_at_once --force-continue --skip-validation --acknowledge-state-risk",
			fleet.Plan{
				Name: "upgrade to 1.1.0", Version: "1.1.0", Strategy: fleet.Strategy{Kind: fleet.AllAtOnce, ForceContinue: true, SkipValidation: true},
				Migration: fleet.Migration{AcknowledgeStateRisk: true},
			},
		},
	} {
		got, err := withFlags(t, strings.Fields(row.args)...)
		if err != nil || !reflect.DeepEqual(got, row.want) {
			t.Errorf("%s gives %s, %v\nwant %s", row.args, toJSON(got), err, toJSON(row.want))
		}
	}
}

func toJSON(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

func TestPlanFlagsOverrideThePlanFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(path, []byte("name: x\nversion: 1.0.0\nselect: { labels: { os: [linux] }, policies: [web] }\nstrategy: { kind: canary, batch_percent: 5, canary: { percent: 1, approval: true } }\nfailure: { count: 1 }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := withFlags(t, "--file", path, "--version", "1.2.0", "--label", "os=windows", "--canary", "3", "--batch-size", "7")
	if err != nil {
		t.Fatal(err)
	}
	one := 1
	want := fleet.Plan{
		Name: "x", Version: "1.2.0", Select: fleet.Selector{Policies: []string{"web"}, Labels: map[string][]string{"os": {"windows"}}}, Failure: fleet.FailureRule{Count: &one},
		Strategy: fleet.Strategy{Kind: fleet.Canary, BatchSize: 7, Canary: &fleet.CanaryRule{Size: 3, Approval: true}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the plan is %s\nwant %s", toJSON(got), toJSON(want))
	}
}

func TestInvalidPlanFlagsAreRefused(t *testing.T) {
	for args, says := range map[string]string{
		"--label fra":         `--label is "fra", want a label and its value`,
		"--exclude =x":        `--exclude is "=x"`,
		"--max-per site":      `--max-per is "site"`,
		"--max-per =4":        `--max-per is "=4"`,
		"--canary none":       `--canary is "none"`,
		"--canary 0":          `--canary is "0"`,
		"--canary 1.5":        `--canary is "1.5"`,
		"--canary -3%":        `--canary is "-3%"`,
		"--deadline tomorrow": `--deadline is "tomorrow"`,
		"--file no-such.yaml": "`muster rollouts example`",
	} {
		if _, err := withFlags(t, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s gives %v, want %q", args, err, says)
		}
	}
}

func TestParseTime(t *testing.T) {
	zone := time.FixedZone("x", 3600)
	now := time.Date(2026, 11, 21, 15, 4, 5, 0, zone)
	for text, want := range map[string]time.Time{
		"2026-01-31T12:00:00Z": time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC),
		"2026-01-31 12:00:01":  time.Date(2026, 1, 31, 12, 0, 1, 0, zone),
		"2026-01-31 12:00":     time.Date(2026, 1, 31, 12, 0, 0, 0, zone),
		"2026-01-31":           time.Date(2026, 1, 31, 0, 0, 0, 0, zone),
		"09:30":                time.Date(2026, 11, 21, 9, 30, 0, 0, zone),
		"2h ago":               now.Add(-2 * time.Hour),
	} {
		if got, err := parseTime(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q is %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "soon", "25:00", "ago", "2 ago"} {
		if got, err := parseTime(text, now); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func TestExamplePlanIsValidAndHasEveryKey(t *testing.T) {
	if _, err := parsed(t, examplePlan); err != nil {
		t.Fatal(err)
	}
	// Keys that are commented out count too.
	whole := regexp.MustCompile(`(?m)^( *)# ([ ]*(?:- )?[a-z_]+:( |$))`).ReplaceAllString(examplePlan, "$1$2")
	f := newPlanFile("plan.yaml")
	if err := f.parse([]byte(whole), &f.plan); err != nil {
		t.Fatal(err)
	}
	for _, missing := range missingKeys(f.root, reflect.TypeOf(fleet.Plan{}), "") {
		if missing == "server_defaults" {
			continue // the server sets it
		}
		if strings.Contains(examplePlan, "or "+missing[strings.LastIndexByte(missing, '.')+1:]+": ") {
			continue // named in the comment of the key that excludes it
		}
		t.Errorf("%s is not in the example", missing)
	}
}

func TestExampleGroupExplainsEveryKey(t *testing.T) {
	f := yamlFile{name: "group.yaml"}
	var got fleet.GroupPlan
	if err := f.parse([]byte(exampleGroup), &got); err != nil {
		t.Fatal(err)
	}
	if err := group.Check(&got); err != nil {
		t.Errorf("the example is refused: %v", err)
	}
	whole := regexp.MustCompile(`(?m)^( *)# ([ ]*(?:- )?[a-z_]+:( |$))`).ReplaceAllString(exampleGroup, "$1$2")
	f = yamlFile{name: "group.yaml"}
	if err := f.parse([]byte(whole), &got); err != nil {
		t.Fatal(err)
	}
	for _, missing := range missingKeys(f.root, reflect.TypeOf(got), "") {
		if !strings.Contains(missing, "plan.") { // muster rollouts example has those
			t.Errorf("%s is not in the example", missing)
		}
	}
}

func TestExampleComponentsExplainEveryKey(t *testing.T) {
	whole := regexp.MustCompile(`(?m)^( *)# ([ ]*(?:- )?[a-z_]+:( |$))`).ReplaceAllString(exampleComponents, "$1$2")
	f := yamlFile{name: "components.yaml"}
	var got componentsFile
	if err := f.parse([]byte(whole), &got); err != nil {
		t.Fatal(err)
	}
	missing := missingKeys(f.root, reflect.TypeOf(got), "")
	missing = slices.DeleteFunc(missing, func(key string) bool { return key == "components.in_force" }) // the server sets it
	if len(missing) > 0 {
		t.Errorf("the example lacks %v", missing)
	}
}

// missingKeys returns the keys of a type that a YAML document lacks.
func missingKeys(n *yaml.Node, t reflect.Type, at string) (missing []string) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		if t = t.Elem(); n.Kind == yaml.SequenceNode && len(n.Content) > 0 {
			n = n.Content[0]
		}
	}
	if t.Kind() != reflect.Struct || t == reflect.TypeOf(time.Time{}) {
		return nil
	}
	for _, field := range reflect.VisibleFields(t) {
		key, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if key == "" {
			continue
		}
		below := child(n, key)
		if below == nil {
			missing = append(missing, strings.TrimPrefix(at+"."+key, "."))
			continue
		}
		missing = append(missing, missingKeys(below, field.Type, at+"."+key)...)
	}
	return missing
}

func TestExamplePipelineUsesExistingCommandsAndFlags(t *testing.T) {
	var doc any
	if err := yaml.Unmarshal([]byte(exampleCI), &doc); err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile("muster [a-z][^\n`]*").FindAllString(strings.NewReplacer("run: ", "").Replace(exampleCI), -1)
	seen := 0
	for _, line := range commands {
		line, _, _ = strings.Cut(line, " > ")
		args, err := shellWords(line)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		cmd, rest, err := New("test").Find(args[1:])
		if err == nil {
			err = cmd.ParseFlags(rest)
		}
		if err == nil && cmd.Args != nil {
			err = cmd.Args(cmd, cmd.Flags().Args())
		}
		group := cmd.HasSubCommands() && cmd.CommandPath() != "muster server" // that one runs by itself
		if err != nil || !cmd.Runnable() || group {
			t.Errorf("%s: %v", line, err)
		}
		seen++
	}
	if seen < 8 {
		t.Errorf("only %d commands were found", seen)
	}
}

// shellWords splits a line like a shell. It supports double quotes only.
func shellWords(line string) (words []string, err error) {
	var b bytes.Buffer
	quoted, open := false, false
	for _, r := range line {
		switch {
		case r == '"':
			quoted, open = !quoted, true
		case r == ' ' && !quoted:
			if b.Len() > 0 || open {
				words = append(words, b.String())
			}
			b.Reset()
			open = false
		default:
			b.WriteRune(r)
		}
	}
	if quoted {
		return nil, errUnclosed
	}
	return append(words, b.String()), nil
}

var errUnclosed = &usageError{os.ErrInvalid}
