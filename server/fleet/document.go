package fleet

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// An agent's document is JSON that a store keeps, and most of it is what its host
// says of itself. An order for a fleet reads and writes all of them, and changes a
// few fields: so an Agent that was read remembers the document, and what is as it
// was is neither read, nor checked, nor made anew.

// document is what an agent was read from. Nothing of it is shared with the Agent
// but texts, and it never changes: copies of the Agent have the same.
type document struct {
	local, user, components string // as they stand there
	revision                int64
	standing                standing
	tags                    []string
	upgrade                 upgradeTimes
	host                    HostMetadata
}

// standing is what lists, labels and statuses are made of besides metadata, tags
// and the upgrade.
type standing struct {
	id, policyID, audit, version string
	active, unenrolling          bool
	enrolledAt                   time.Time
	versionSince, healthySince   moment
}

type upgradeTimes struct{ startedAt, upgradedAt moment }

// moment is a time that may be missing, as a value.
type moment struct {
	time.Time
	is bool
}

func momentOf(t *time.Time) moment {
	if t == nil {
		return moment{}
	}
	return moment{*t, true}
}

func (a *Agent) standing() standing {
	return standing{
		a.ID, a.PolicyID, a.AuditUnenrolledReason, a.Version, a.Active, a.UnenrollmentStartedAt != nil,
		a.EnrolledAt, momentOf(a.VersionSince), momentOf(a.HealthySince),
	}
}

func (a *Agent) upgradeTimes() upgradeTimes {
	return upgradeTimes{momentOf(a.UpgradeStartedAt), momentOf(a.UpgradedAt)}
}

// Differs says in what the agent differs from the document of its revision, if it
// was read with DecodeAgent: in anything that its status, its labels, and what it
// is listed by are made of, but for its upgrade; and in when its last upgrade
// started and ended. Both are true of an agent that was not.
func (a *Agent) Differs() (standing, upgrade bool) {
	d := a.read
	if d == nil || d.revision != a.Revision {
		return true, true
	}
	standing = a.standing() != d.standing || !slices.Equal(a.Tags, d.tags) ||
		string(a.LocalMetadata) != d.local || string(a.UserMetadata) != d.user
	return standing, a.upgradeTimes() != d.upgrade
}

// DecodeAgent reads what Encode wrote, or json.Marshal, as json.Unmarshal does. What
// a host says is not looked into: the document must be one that was valid when it was
// stored.
func DecodeAgent(doc string, revision int64) (Agent, error) {
	var a Agent
	d, ok := a.decode(doc)
	if !ok {
		a = Agent{}
		err := json.Unmarshal([]byte(doc), &a)
		a.Revision = revision
		return a, err
	}
	a.Revision = revision
	d.revision, d.standing, d.tags, d.upgrade = revision, a.standing(), slices.Clone(a.Tags), a.upgradeTimes()
	d.host = d.readHost()
	a.read = d
	return a, nil
}

// Forget drops the document, which is larger than the Agent: of a whole fleet that is
// read, and kept, it would be too much. To write such an agent costs what it costs
// to write a new one.
func (a *Agent) Forget() { a.read = nil }

// decode is not ok with anything that is not plainly as this server writes it.
func (a *Agent) decode(doc string) (*document, bool) {
	d := new(document)
	v := reflect.ValueOf(a).Elem()
	ok := eachMember(doc, func(name, value string) bool {
		f, known := agentMembersByName[name]
		if !known {
			return false
		}
		switch {
		case f.raw != nil:
			*f.raw(d) = value
			v.Field(f.place).SetBytes([]byte(value))
			return true
		case value == "null":
			if k := v.Field(f.place).Kind(); k == reflect.Pointer || k == reflect.Slice {
				v.Field(f.place).SetZero()
			}
			return true
		}
		return decodeField(v.Field(f.place), value)
	})
	return d, ok
}

// DecodeEvent reads what json.Marshal wrote, as json.Unmarshal does: each server reads
// all that happens to a fleet. Its data is not looked into: the document must be one
// that was valid when it was stored.
func DecodeEvent(doc string) (Event, error) {
	var e Event
	if e.decode(doc) {
		return e, nil
	}
	e = Event{}
	err := json.Unmarshal([]byte(doc), &e)
	return e, err
}

// decode is not ok with anything that is not plainly as this server writes it.
func (e *Event) decode(doc string) bool {
	return eachMember(doc, func(name, value string) bool {
		switch name {
		case "seq":
			return value == "0" // the store knows it
		case "at":
			return e.At.UnmarshalJSON([]byte(value)) == nil
		case "type":
			return takeText(&e.Type, value)
		case "subject":
			return takeText(&e.Subject, value)
		case "actor":
			return takeText(&e.Actor, value)
		case "data":
			e.Data = json.RawMessage(value)
			return true
		}
		return false
	})
}

// takeText takes the short way or none.
func takeText(p *string, value string) bool {
	text, ok := plainText(value)
	if ok {
		*p = strings.Clone(text) // who keeps a name does not keep the document
	}
	return ok
}

// member is one of an Agent's document.
type member struct {
	place               int
	name                string // as it stands before the value
	omitEmpty, omitZero bool
	raw                 func(*document) *string // of what is JSON of its own
}

var agentMembers, agentMembersByName = func() (members []member, byName map[string]member) {
	raw := map[string]func(*document) *string{
		"local_metadata":         func(d *document) *string { return &d.local },
		"user_provided_metadata": func(d *document) *string { return &d.user },
		"components":             func(d *document) *string { return &d.components },
	}
	byName = map[string]member{}
	agent := reflect.TypeFor[Agent]()
	for i := range agent.NumField() {
		name, options, _ := strings.Cut(agent.Field(i).Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		byName[name] = member{i, `"` + name + `":`, options == "omitempty", options == "omitzero", raw[name]}
		members = append(members, byName[name])
	}
	return members, byName
}()

// decodeField reads one value. It takes the short way where that is clear.
func decodeField(v reflect.Value, value string) bool {
	switch p := v.Addr().Interface().(type) {
	case *string:
		if takeText(p, value) {
			return true
		}
	case *UpgradeStatus:
		if text, ok := plainText(value); ok {
			*p = UpgradeStatus(strings.Clone(text))
			return true
		}
	case *bool:
		*p = value == "true"
		return *p || value == "false"
	case *time.Time:
		return p.UnmarshalJSON([]byte(value)) == nil
	case **time.Time:
		*p = new(time.Time)
		return (*p).UnmarshalJSON([]byte(value)) == nil
	}
	return json.Unmarshal([]byte(value), v.Addr().Interface()) == nil
}

// plainText returns the text of a JSON string in which every byte is itself.
func plainText(value string) (string, bool) {
	if len(value) < 2 || value[0] != '"' {
		return "", false
	}
	text := value[1 : len(value)-1]
	return text, isPlain(text)
}

// isPlain says whether every byte of a text stands for itself in JSON.
func isPlain(text string) bool {
	for i := range len(text) {
		if !plain[text[i]] {
			return false
		}
	}
	return true
}

var plain = func() (plain [256]bool) {
	for c := ' '; c <= '~'; c++ {
		plain[c] = !strings.ContainsRune(`"\<>&`, c)
	}
	return plain
}()

// Encode appends the document, as json.Marshal makes it, to b.
func (a *Agent) Encode(b []byte) ([]byte, error) {
	was := a.read
	if was == nil {
		was = new(document)
	}
	b = append(b, '{')
	v := reflect.ValueOf(a).Elem()
	var err error
	for i := range agentMembers {
		f := &agentMembers[i]
		part := v.Field(f.place)
		if f.isLeftOut(part) {
			continue
		}
		b = append(b, f.name...)
		if f.raw != nil {
			b, err = appendRaw(b, part.Bytes(), *f.raw(was))
		} else {
			b, err = appendField(b, part)
		}
		if err != nil {
			return b, err
		}
		b = append(b, ',')
	}
	b[len(b)-1] = '}' // in place of a comma: there is always an id
	return b, nil
}

func (f *member) isLeftOut(v reflect.Value) bool {
	switch {
	case f.omitEmpty:
		return v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0
	case f.omitZero:
		return v.IsZero()
	}
	return false
}

// appendRaw writes what is JSON of its own, and was so when the document was read.
func appendRaw(b, now []byte, was string) ([]byte, error) {
	if string(now) == was {
		return append(b, now...), nil
	}
	fresh, err := json.Marshal(json.RawMessage(now))
	if err != nil {
		return b, err
	}
	// What hosts say of themselves is kept as it came. Readers in Go see this in
	// place of what is no UTF-8; queries must, too.
	return append(b, bytes.ToValidUTF8(fresh, []byte("\uFFFD"))...), nil
}

// appendField writes one value. It takes the short way where that is clear.
func appendField(b []byte, v reflect.Value) ([]byte, error) {
	switch {
	case v.Kind() == reflect.String && isPlain(v.String()):
		b = append(b, '"')
		b = append(b, v.String()...)
		return append(b, '"'), nil
	case v.Kind() == reflect.Bool:
		return strconv.AppendBool(b, v.Bool()), nil
	case v.Kind() == reflect.Pointer && v.IsNil():
		return append(b, "null"...), nil
	}
	t, ok := v.Addr().Interface().(*time.Time)
	if !ok && v.Kind() == reflect.Pointer {
		t, ok = v.Interface().(*time.Time)
	}
	if ok {
		var err error
		b, err = t.AppendText(append(b, '"'))
		return append(b, '"'), err
	}
	fresh, err := json.Marshal(v.Addr().Interface())
	return append(b, fresh...), err
}

func (d *document) readHost() HostMetadata {
	var m HostMetadata
	if !m.decode(d.local) {
		m = HostMetadata{}
		_ = json.Unmarshal([]byte(d.local), &m) // other people's agents send what they like
	}
	return m
}

// decode reads metadata that is known to be valid as json.Unmarshal does. It is not ok
// with names that only json.Unmarshal knows what to make of.
func (m *HostMetadata) decode(local string) bool {
	return eachPart(local, func(name, value string) bool {
		switch name {
		case "elastic":
			return eachPart(value, func(name, value string) bool {
				if name == "agent" {
					return m.decodeAgent(value)
				}
				return !resembles(name, "agent")
			})
		case "host":
			return m.decodeHost(value)
		case "os":
			return m.decodeOS(value)
		}
		return !resembles(name, "elastic", "host", "os")
	})
}

func (m *HostMetadata) decodeAgent(value string) bool {
	a := &m.Elastic.Agent
	return eachPart(value, func(name, value string) bool {
		switch name {
		case "version":
			return readText(&a.Version, value)
		case "snapshot":
			return readBool(&a.Snapshot, value)
		case "upgradeable":
			return readBool(&a.Upgradeable, value)
		}
		return !resembles(name, "version", "snapshot", "upgradeable")
	})
}

func (m *HostMetadata) decodeHost(value string) bool {
	return eachPart(value, func(name, value string) bool {
		switch name {
		case "hostname":
			return readText(&m.Host.Hostname, value)
		case "name":
			return readText(&m.Host.Name, value)
		case "architecture":
			return readText(&m.Host.Architecture, value)
		}
		return !resembles(name, "hostname", "name", "architecture")
	})
}

func (m *HostMetadata) decodeOS(value string) bool {
	return eachPart(value, func(name, value string) bool {
		switch name {
		case "platform":
			return readText(&m.OS.Platform, value)
		case "family":
			return readText(&m.OS.Family, value)
		case "type":
			return readText(&m.OS.Type, value)
		}
		return !resembles(name, "platform", "family", "type")
	})
}

// resembles says whether json.Unmarshal would take a name for one of these.
func resembles(name string, names ...string) bool {
	for _, n := range names {
		if strings.EqualFold(name, n) {
			return true
		}
	}
	return false
}

// readText passes over what is no text, as json.Unmarshal goes on behind it.
func readText(p *string, value string) bool {
	if value[0] != '"' {
		return true
	}
	return takeText(p, value) || json.Unmarshal([]byte(value), p) == nil
}

func readBool(p *bool, value string) bool {
	if value == "true" || value == "false" {
		*p = value == "true"
	}
	return true
}

// eachPart is eachMember of a value that may be no object: then it has none.
func eachPart(value string, f func(name, value string) bool) bool {
	return value == "" || value[0] != '{' || eachMember(value, f)
}

// eachMember calls f with every member of a JSON object, in their order, until f
// returns false. Whether the values are valid is not looked at. It returns false if f
// did, or with text that it does not understand, such as names with an escape.
func eachMember(object string, f func(name, value string) bool) bool {
	at := space(object, 0)
	if at == len(object) || object[at] != '{' {
		return false
	}
	at = space(object, at+1)
	if at < len(object) && object[at] == '}' {
		return space(object, at+1) == len(object)
	}
	for at < len(object) && object[at] == '"' {
		from := at + 1
		at = textEnd(object, at)
		name := object[from:max(from, at-1)]
		if at = space(object, at); at == len(object) || object[at] != ':' || strings.IndexByte(name, '\\') >= 0 {
			return false
		}
		from = space(object, at+1)
		at = valueEnd(object, from)
		if at == from || !f(name, object[from:at]) {
			return false
		}
		at = space(object, at)
		switch {
		case at == len(object):
			return false
		case object[at] == '}':
			return space(object, at+1) == len(object)
		case object[at] != ',':
			return false
		}
		at = space(object, at+1)
	}
	return false
}

// space returns where s goes on behind white space.
func space(s string, at int) int {
	for at < len(s) && (s[at] == ' ' || s[at] == '\n' || s[at] == '\r' || s[at] == '\t') {
		at++
	}
	return at
}

// textEnd returns the place behind the text that begins at one, or that of the end of
// s.
func textEnd(s string, at int) int {
	for from := at + 1; ; {
		n := strings.IndexByte(s[from:], '"')
		if n < 0 {
			return len(s)
		}
		end := from + n
		escapes := 0
		for end-escapes > from && s[end-escapes-1] == '\\' {
			escapes++
		}
		if from = end + 1; escapes%2 == 0 {
			return from
		}
	}
}

// valueEnd returns the place behind the value that begins at one, or that of the end
// of s.
func valueEnd(s string, at int) int {
	if at < len(s) && s[at] == '"' {
		return textEnd(s, at)
	}
	for depth := 0; at < len(s); {
		switch s[at] {
		case '"':
			at = textEnd(s, at)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return at + 1
			}
			if depth < 0 {
				return at
			}
		case ',', ' ', '\n', '\r', '\t':
			if depth == 0 {
				return at
			}
		}
		at++
	}
	return at
}
