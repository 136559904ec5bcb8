package fleet

import (
	"errors"
	"testing"
	"time"
)

func moment(t *testing.T, text string) time.Time {
	t.Helper()
	if text == "" {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestWindows(t *testing.T) {
	night := Window{From: "22:00", To: "04:00", Zone: "Europe/Berlin"}
	on := func(w Window, days ...string) Window {
		w.Days = days
		return w
	}
	for _, test := range []struct {
		name    string
		windows []Window
		at      string
		open    bool
		until   string
	}{
		{"none is always open", nil, "2026-11-24T14:00:00Z", true, ""},
		{"before it opens", []Window{night}, "2026-11-24T20:59:59Z", false, "2026-11-24T21:00:00Z"},
		{"the moment it opens", []Window{night}, "2026-11-24T21:00:00Z", true, "2026-11-25T03:00:00Z"},
		{"after midnight it is still yesterday's", []Window{night}, "2026-11-25T02:59:59Z", true, "2026-11-25T03:00:00Z"},
		{"the moment it closes", []Window{night}, "2026-11-25T03:00:00Z", false, "2026-11-25T21:00:00Z"},
		{"a day is that on which it begins", []Window{on(night, "fri")}, "2026-11-28T02:00:00Z", true, "2026-11-28T03:00:00Z"},
		{"and not that on which it ends", []Window{on(night, "sat")}, "2026-11-28T02:00:00Z", false, "2026-11-28T21:00:00Z"},
		{"once a week", []Window{on(night, "fri")}, "2026-11-28T04:00:00Z", false, "2026-12-04T21:00:00Z"},
		{"the day is that of the window's zone", []Window{{Days: []string{"tue"}, From: "00:30", To: "01:30", Zone: "Pacific/Auckland"}}, "2026-11-23T11:45:00Z", true, "2026-11-23T12:30:00Z"},
		{"UTC where no zone is said", []Window{{From: "14:00", To: "15:00"}}, "2026-11-24T14:30:00Z", true, "2026-11-24T15:00:00Z"},
		{"two that touch are one", []Window{{From: "15:00", To: "16:00"}, {From: "14:00", To: "15:00"}}, "2026-11-24T14:30:00Z", true, "2026-11-24T16:00:00Z"},
		{"one inside another changes nothing", []Window{{From: "10:00", To: "18:00"}, {From: "12:00", To: "13:00"}}, "2026-11-24T12:30:00Z", true, "2026-11-24T18:00:00Z"},
		{"the next of several", []Window{on(night, "thu"), {From: "18:00", To: "19:00"}}, "2026-11-24T14:00:00Z", false, "2026-11-24T18:00:00Z"},
		{"whole days are always open", []Window{{From: "00:00", To: "00:00"}}, "2026-11-24T14:00:00Z", true, ""},
		{"one that cannot be read is never open", []Window{{From: "late", To: "later"}}, "2026-11-24T14:00:00Z", false, ""},

		// On 29 March 2026 Berlin goes from 2:00 CET (1:00 UTC) to 3:00 CEST.
		{"it opens when the clock skips its beginning", []Window{{From: "02:30", To: "04:00", Zone: "Europe/Berlin"}}, "2026-03-29T00:00:00Z", false, "2026-03-29T01:00:00Z"},
		{"it closes when the clock skips its end", []Window{{From: "01:00", To: "02:30", Zone: "Europe/Berlin"}}, "2026-03-29T00:30:00Z", true, "2026-03-29T01:00:00Z"},
		{"one that is skipped whole stays closed till the next day", []Window{{From: "02:10", To: "02:50", Zone: "Europe/Berlin"}}, "2026-03-29T00:30:00Z", false, "2026-03-30T00:10:00Z"},
		{"a night is an hour shorter", []Window{night}, "2026-03-28T21:00:00Z", true, "2026-03-29T02:00:00Z"},
		// On 25 October 2026 it goes from 3:00 CEST (1:00 UTC) back to 2:00 CET.
		{"it opens when its beginning is first shown", []Window{{From: "02:30", To: "04:00", Zone: "Europe/Berlin"}}, "2026-10-24T22:00:00Z", false, "2026-10-25T00:30:00Z"},
		{"it closes when its end is first shown", []Window{{From: "01:00", To: "02:30", Zone: "Europe/Berlin"}}, "2026-10-24T23:30:00Z", true, "2026-10-25T00:30:00Z"},
		{"and not once more", []Window{{From: "01:00", To: "02:30", Zone: "Europe/Berlin"}}, "2026-10-25T01:15:00Z", false, "2026-10-26T00:00:00Z"},
		{"a night is an hour longer", []Window{night}, "2026-10-24T20:00:00Z", true, "2026-10-25T03:00:00Z"},
		{"midnight itself is skipped in some places", []Window{{From: "00:00", To: "02:00", Zone: "America/Santiago"}}, "2026-09-06T03:30:00Z", false, "2026-09-06T04:00:00Z"},
	} {
		t.Run(test.name, func(t *testing.T) {
			open, until := OpenAt(test.windows, moment(t, test.at))
			if open != test.open || !until.Equal(moment(t, test.until)) {
				t.Errorf("at %s it is open: %v, until %s; want %v, %s", test.at, open, until, test.open, test.until)
			}
		})
	}
}

func TestMalformedWindowsAreRefused(t *testing.T) {
	good := Window{Days: []string{"mon"}, From: "22:00", To: "04:00", Zone: "Europe/Berlin"}
	if _, err := readWindow("w", good); err != nil {
		t.Fatal(err)
	}
	for field, spoil := range map[string]func(*Window){
		"days": func(w *Window) { w.Days = []string{"monday"} },
		"from": func(w *Window) { w.From = "25:00" },
		"to":   func(w *Window) { w.To = "" },
		"zone": func(w *Window) { w.Zone = "Europe/Atlantis" },
	} {
		w := good
		spoil(&w)
		_, err := readWindow("w", w)
		var e *Error
		if !errors.As(err, &e) || e.Field != "w."+field || e.Kind != Invalid {
			t.Errorf("%+v is refused with %v, want a word on %s", w, err, field)
		}
	}
	good.Zone = "Local"
	if _, err := readWindow("w", good); err == nil {
		t.Error("a window of the server's own time zone is taken")
	}
}
