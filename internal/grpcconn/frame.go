package grpcconn

import "encoding/binary"

// The parts of HTTP/2 (RFC 9113) that a gRPC client needs.

const clientPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

type frameType byte

const (
	frameData         frameType = 0
	frameHeaders      frameType = 1
	framePriority     frameType = 2
	frameReset        frameType = 3
	frameSettings     frameType = 4
	framePushPromise  frameType = 5
	framePing         frameType = 6
	frameGoAway       frameType = 7
	frameWindowUpdate frameType = 8
	frameContinuation frameType = 9
)

const (
	flagAck        = 0x1 // of SETTINGS and PING
	flagEndStream  = 0x1 // of DATA and HEADERS
	flagEndHeaders = 0x4
	flagPadded     = 0x8
	flagPriority   = 0x20
)

const (
	frameHeaderLen = 9

	initialWindow    = 1<<16 - 1 // of a stream and of the connection, before anything is said of it
	maxWindow        = 1<<31 - 1
	minMaxFrame      = 1 << 14  // the least that a peer takes
	maxFrameReceived = 1 << 20  // the longest that is taken here
	maxFrameSent     = 1 << 16  // more is not worth it
	maxHeaderList    = 16 << 20 // bytes of headers, as HTTP/2 counts them: as much as gRPC's own client takes
)

type settingID uint16

const (
	settingHeaderTable   settingID = 1
	settingEnablePush    settingID = 2
	settingMaxStreams    settingID = 3
	settingInitialWindow settingID = 4
	settingMaxFrame      settingID = 5
	settingMaxHeaderList settingID = 6
)

type setting struct {
	id    settingID
	value uint32
}

type errorCode uint32

const (
	codeNone               errorCode = 0
	codeProtocol           errorCode = 1
	codeFlowControl        errorCode = 3
	codeStreamClosed       errorCode = 5
	codeFrameSize          errorCode = 6
	codeRefusedStream      errorCode = 7
	codeCancel             errorCode = 8
	codeCompression        errorCode = 9
	codeEnhanceYourCalm    errorCode = 11
	codeInadequateSecurity errorCode = 12
)

// appendFrameHeader begins a frame, whose payload of n bytes is appended behind it.
func appendFrameHeader(b []byte, n int, t frameType, flags byte, stream uint32) []byte {
	b = append(b, byte(n>>16), byte(n>>8), byte(n), byte(t), flags)
	return binary.BigEndian.AppendUint32(b, stream)
}

func appendSettings(b []byte, settings ...setting) []byte {
	b = appendFrameHeader(b, 6*len(settings), frameSettings, 0, 0)
	for _, s := range settings {
		b = binary.BigEndian.AppendUint16(b, uint16(s.id))
		b = binary.BigEndian.AppendUint32(b, s.value)
	}
	return b
}

func appendWindowUpdate(b []byte, stream uint32, n int) []byte {
	b = appendFrameHeader(b, 4, frameWindowUpdate, 0, stream)
	return binary.BigEndian.AppendUint32(b, uint32(n))
}

func appendReset(b []byte, stream uint32, code errorCode) []byte {
	b = appendFrameHeader(b, 4, frameReset, 0, stream)
	return binary.BigEndian.AppendUint32(b, uint32(code))
}

func appendPing(b []byte, flags byte, data [8]byte) []byte {
	b = appendFrameHeader(b, 8, framePing, flags, 0)
	return append(b, data[:]...)
}

func appendGoAway(b []byte, last uint32, code errorCode) []byte {
	b = appendFrameHeader(b, 8, frameGoAway, 0, 0)
	b = binary.BigEndian.AppendUint32(b, last)
	return binary.BigEndian.AppendUint32(b, uint32(code))
}

// appendHeaders puts a block of headers into as many frames as it needs.
func appendHeaders(b []byte, stream uint32, block []byte, maxFrame int) []byte {
	t := frameHeaders
	for {
		n, flags := min(len(block), maxFrame), byte(0)
		if n == len(block) {
			flags = flagEndHeaders
		}
		b = appendFrameHeader(b, n, t, flags, stream)
		b = append(b, block[:n]...)
		if block = block[n:]; len(block) == 0 {
			return b
		}
		t = frameContinuation
	}
}
