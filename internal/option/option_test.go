package option_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/flightpool/flightpool/internal/option"
	"github.com/flightpool/flightpool/internal/option/optiontest"
)

type config struct {
	Size, Spare int
	Bound       time.Duration
	Inner       struct{ Mode mode }
	Loud        bool
	Name        string
	Log         func()
}

type mode uint8

var size = option.Number{Least: 0, Most: 99, Wrong: "is no size"}.Read

var table = option.Table[config]{
	option.Field[config, int]{Name: "Size", Key: "size", At: func(c *config) *int { return &c.Size }, Read: size, Default: 4},
	option.Field[config, int]{
		Name: "Spare", Key: "spare", At: func(c *config) *int { return &c.Spare }, Read: option.NeverOff(size, "must be there"),
		DefaultBy: func(c *config) int { return c.Size / 2 }, OffAs: func(*config) int { return 0 },
	},
	option.Field[config, time.Duration]{
		Name: "Bound", Key: "bound", At: func(c *config) *time.Duration { return &c.Bound },
		Read: option.Duration{Unit: time.Millisecond, Wrong: "is no time"}.Read, Check: option.Bounds,
	},
	option.Field[config, mode]{Name: "Inner.Mode", Key: "mode", At: func(c *config) *mode { return &c.Inner.Mode }, Read: option.Choice("slow, fast", mode(0), mode(7))},
	option.Field[config, bool]{Name: "Loud", Key: "quiet", At: func(c *config) *bool { return &c.Loud }, Read: option.Not(option.Bool)},
	option.Field[config, string]{Name: "Name", At: func(c *config) *string { return &c.Name }, Default: "it"},
}

func TestTheTableCoversItsConfiguration(t *testing.T) { optiontest.Covers(t, table, "Log") }

func TestTextsAreReadAndFaultsSayWhatIsWrong(t *testing.T) {
	for _, tc := range []struct {
		key, text string
		want      *config
		fault     string
	}{
		{"size", "5", &config{Size: 5}, ""},
		{"size", "0", &config{Size: option.Off}, ""},
		{"size", "-1", nil, `"-1" is no size`},
		{"size", "99", &config{Size: 99}, ""},
		{"size", "100", nil, `"100" is no size`},
		{"size", "1e1", nil, `"1e1" is no size`},
		{"spare", "0", nil, "must be there"},
		{"spare", "x", nil, `"x" is no size`},
		{"bound", "5", &config{Bound: 5 * time.Millisecond}, ""},
		{"bound", "5s", &config{Bound: 5 * time.Second}, ""},
		{"bound", "0", &config{Bound: option.Off}, ""},
		{"bound", "-1s", nil, `"-1s" is no time`},
		{"bound", "9223372036854775807", nil, `"9223372036854775807" is no time`},
		{"bound", "soon", nil, `"soon" is no time`},
		{"mode", "fast", &config{Inner: struct{ Mode mode }{7}}, ""},
		{"mode", "FAST", nil, `"FAST" is none of slow, fast`},
		{"quiet", "false", &config{Loud: true}, ""},
		{"quiet", "ja", nil, `"ja" is neither true nor false`},
	} {
		row, ok := table.Find(tc.key)
		require.True(t, ok, tc.key)
		assign, err := row.Parse(tc.text)
		if tc.fault != "" {
			require.EqualError(t, err, tc.fault)
			continue
		}
		require.NoError(t, err)
		var c config
		require.False(t, row.IsSet(&c))
		assign(&c)
		require.Equal(t, tc.want.Size+int(tc.want.Bound), c.Size+int(c.Bound), tc.text)
		require.Equal(t, tc.want.Inner, c.Inner)
		require.Equal(t, tc.want.Loud, c.Loud)
		require.True(t, row.IsSet(&c))
		row.Reset(&c)
		require.False(t, row.IsSet(&c))
	}
	for _, key := range []string{"", "name"} {
		_, ok := table.Find(key)
		require.False(t, ok, "what has no key is not found")
	}
	require.Equal(t, []string{"bound", "mode", "quiet", "size", "spare"}, table.Keys())
	kind, err := option.ChoiceInAnyCase("slow, fast", 1, 2)("Fast")
	require.NoError(t, err)
	require.Equal(t, 2, kind)
	require.Equal(t, `"0123456789012345678901234567890123456789…"`, option.Quote("0123456789012345678901234567890123456789x"))
	_, err = option.Number{Least: math.MinInt}.Read("-7")
	require.NoError(t, err)
}

func TestDefaultsFillWhatWasNotSet(t *testing.T) {
	var c config
	table.Fill(&c)
	require.Equal(t, []any{4, 2, "it"}, []any{c.Size, c.Spare, c.Name})
	c = config{Size: option.Off, Spare: option.Off, Name: "mine"}
	table.Fill(&c)
	require.Equal(t, []any{option.Off, 0, "mine"}, []any{c.Size, c.Spare, c.Name})
}

func TestFaultsNameTheirFields(t *testing.T) {
	for bound, want := range map[time.Duration]string{
		0: "", time.Millisecond: "", 999_999: "Bound: 999.999µs is less than 1ms: is the unit missing?", 1: "Bound: 1ns is less than 1ms: is the unit missing?",
		-1: "Bound: cannot be switched off",
	} {
		faults := table.Faults(&config{Bound: bound})
		if want == "" {
			require.Empty(t, faults)
			continue
		}
		require.Len(t, faults, 1)
		require.EqualError(t, faults[0], want)
	}
}

func TestOfNumbersAndTimesNoTextIsZero(t *testing.T) {
	for key, want := range map[string]bool{"size": false, "bound": false, "mode": true, "quiet": true} {
		row, _ := table.Find(key)
		require.Equal(t, want, row.ZeroIsText(), key)
	}
}
