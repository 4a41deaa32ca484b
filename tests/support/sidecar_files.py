"""XML sidecars of EnMAP products."""

from __future__ import annotations

ENMAP = "ENMAP01-____L2A-DT0000001867_20220724T104526Z_008_V010302_20230628T165614Z"


WAVES = (418.42, 950.5, 902.2, 2445.3)  # the two detectors overlap


def enmap_xml(
    waves: tuple[float, ...] = WAVES, gain: str = "0.0001", offset: str = "0", backwards: bool = False
) -> str:
    bands = [
        f'<bandID number="{n}"><wavelengthCenterOfBand>{wave}</wavelengthCenterOfBand><FWHMOfBand>{6 + n}</FWHMOfBand>'
        f"<GainOfBand>{gain}</GainOfBand><OffsetOfBand>{offset}</OffsetOfBand></bandID>"
        for n, wave in enumerate(waves, 1)
    ]
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<level_X xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">'
        f"<metadata><name>{ENMAP}-METADATA.XML</name></metadata><base><level>L2A</level></base><specific>"
        "<deadPixels><bandID number='1'>7</bandID></deadPixels><backgroundValue>-32768</backgroundValue>"
        f"<bandCharacterisation>{''.join(reversed(bands) if backwards else bands)}</bandCharacterisation></specific>"
        "<product><image><merge><name>/etc/passwd</name></merge></image></product></level_X>"
    )
