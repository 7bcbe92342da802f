"""What WhatsApp writes into an exported chat by itself, in the languages that its exports were seen in.

A line that is in none of these lists is kept as what somebody said: nothing is lost where a language is missing, only marks stay in WhatsApp's words.
"""

from __future__ import annotations

import re

MEDIA = {  # instead of a file, where it was exported without media; between < and > on Android
    "en": ("media omitted", "image omitted", "video omitted", "audio omitted", "sticker omitted", "gif omitted", "document omitted", "contact card omitted",
           "voice message omitted", "video note omitted", "view once voice message omitted"),
    "de": ("medien ausgeschlossen", "medien weggelassen", "bild weggelassen", "video weggelassen", "audio weggelassen", "sticker weggelassen",
           "gif weggelassen", "dokument weggelassen", "kontaktkarte ausgelassen", "kontaktkarte weggelassen"),
    "es": ("multimedia omitido", "archivo omitido", "imagen omitida", "video omitido", "audio omitido", "sticker omitido", "gif omitido", "documento omitido"),
    "fr": ("médias omis", "fichier omis", "image absente", "vidéo absente", "audio omis", "sticker omis", "gif retiré", "document omis"),
    "it": ("media omessi", "file omesso", "immagine omessa", "video omesso", "audio omesso", "sticker non incluso", "gif esclusa", "documento omesso"),
    "pt": ("mídia oculta", "arquivo de mídia oculto", "ficheiro não revelado", "imagem ocultada", "imagem omitida", "vídeo omitido", "áudio ocultado",
           "áudio omitido", "figurinha omitida", "gif omitido", "documento omitido"),
    "nl": ("media weggelaten", "afbeelding weggelaten", "video weggelaten", "audio weggelaten", "sticker weggelaten", "document weggelaten"),
    "fi": ("media jätettiin pois", "kuva jätetty pois", "video jätetty pois", "ääni jätetty pois"),
    "sv": ("media har utelämnats", "media utelämnad", "bild utelämnad", "video utelämnad", "ljud utelämnat"),
    "pl": ("pominięto multimedia", "pominięto obraz", "pominięto plik wideo", "pominięto dźwięk"),
    "tr": ("medya dahil edilmedi", "görüntü dahil edilmedi", "video dahil edilmedi", "ses dahil edilmedi"),
    "ru": ("без медиафайлов", "изображение отсутствует", "видео отсутствует", "аудиофайл отсутствует"),
    "id": ("media tidak disertakan", "gambar tidak disertakan", "video tidak disertakan"),
    "ja": ("メディアは含まれていません", "画像は含まれていません"),
    "zh": ("省略多媒体文件", "省略多媒體檔", "图像已忽略", "圖片已略去", "忽略图片"),
    "ar": ("تم استبعاد الوسائط",),
    "hi": ("मीडिया छोड़ा गया",),
    "ko": ("미디어 파일을 제외한 내용", "미디어 파일 제외됨", "사진 생략됨", "이미지 생략됨", "동영상 생략됨", "오디오 생략됨", "스티커 생략됨", "문서 생략됨"),
    "he": ("המדיה לא נכללה", "תמונה הושמטה", "סרטון הושמט"),
}  # fmt: skip
FILES = {  # after a file's name, in brackets, on Android; between < and > before it on iOS
    "en": ("file attached", "attached"), "de": ("datei angehängt", "anhang"), "es": ("archivo adjunto", "adjunto"), "fr": ("fichier joint", "pièce jointe"),
    "it": ("file allegato", "allegato"), "pt": ("arquivo anexado", "ficheiro anexado", "anexado"), "nl": ("bestand bijgevoegd", "bijlage", "bijgevoegd"),
    "fi": ("tiedosto liitetty", "liite"), "sv": ("bifogad fil", "bifogad"), "pl": ("plik załączony", "załączono", "załącznik"), "tr": ("dosya ekli", "ekli"),
    "ru": ("файл добавлен", "прикреплено"), "id": ("file terlampir", "terlampir"), "ja": ("ファイル添付", "添付ファイル"),
    "zh": ("文件附件", "附件", "檔案附加"),
    "ar": ("الملف مرفق", "مرفق"), "hi": ("फ़ाइल जुड़ी है",), "he": ("קובץ מצורף", "מצורף"),
}  # fmt: skip
DELETED = {
    "en": ("this message was deleted", "you deleted this message", "this message was deleted by admin"),
    "de": ("diese nachricht wurde gelöscht", "du hast diese nachricht gelöscht"),
    "es": ("se eliminó este mensaje", "este mensaje fue eliminado", "eliminaste este mensaje"),
    "fr": ("ce message a été supprimé", "vous avez supprimé ce message", "message supprimé"),
    "it": ("questo messaggio è stato eliminato", "hai eliminato questo messaggio"),
    "pt": ("mensagem apagada", "essa mensagem foi apagada", "esta mensagem foi apagada", "você apagou essa mensagem", "apagou esta mensagem"),
    "nl": ("dit bericht is verwijderd", "dit bericht werd verwijderd", "u hebt dit bericht verwijderd", "je hebt dit bericht verwijderd"),
    "fi": ("tämä viesti poistettiin", "poistit tämän viestin"), "sv": ("detta meddelande har raderats", "du raderade detta meddelande"),
    "pl": ("ta wiadomość została usunięta", "usunięto tę wiadomość"), "tr": ("bu mesaj silindi", "bu mesajı sildiniz"),
    "ru": ("данное сообщение удалено", "сообщение удалено", "вы удалили данное сообщение"), "id": ("pesan ini telah dihapus", "anda menghapus pesan ini"),
    "ja": ("このメッセージは削除されました",), "zh": ("此消息已删除", "此訊息已刪除", "你已删除这条消息"), "ar": ("تم حذف هذه الرسالة",),
    "hi": ("यह संदेश मिटा दिया गया",), "ko": ("삭제된 메시지입니다", "이 메시지는 삭제되었습니다"), "he": ("הודעה זו נמחקה",),
}  # fmt: skip
EDITED = {
    "en": ("this message was edited",), "de": ("diese nachricht wurde bearbeitet",), "es": ("se editó este mensaje", "este mensaje fue editado"),
    "fr": ("ce message a été modifié",), "it": ("questo messaggio è stato modificato",), "pt": ("mensagem editada", "esta mensagem foi editada"),
    "nl": ("dit bericht is bewerkt",), "fi": ("tätä viestiä muokattiin",), "sv": ("detta meddelande har redigerats",),
    "pl": ("ta wiadomość została zmieniona",),
    "tr": ("bu mesaj düzenlendi",), "ru": ("данное сообщение изменено", "сообщение изменено"), "id": ("pesan ini telah diedit",),
    "ja": ("このメッセージは編集されました",), "zh": ("此消息已编辑", "此訊息已編輯"), "ar": ("تم تعديل هذه الرسالة",), "hi": ("यह संदेश संपादित किया गया",),
}  # fmt: skip
SYSTEM = {  # of lines whose author is the chat itself, as iOS writes them
    "en": ("end-to-end encrypted", "created group", "created this group", "added you", "joined using", "changed their phone number", "changed the subject",
           "changed this group's icon", "changed the group", "your security code with", "security code changed", "is a contact", "disappearing messages",
           "missed voice call", "missed video call", "turned on", "left"),
    "de": ("ende-zu-ende-verschlüsselt", "hat die gruppe", "gruppe erstellt", "sicherheitsnummer", "hat dich hinzugefügt"),
    "es": ("cifrados de extremo a extremo", "creó el grupo", "creó este grupo", "código de seguridad", "te añadió"),
    "fr": ("chiffrés de bout en bout", "a créé le groupe", "a créé ce groupe", "code de sécurité"),
    "it": ("crittografati end-to-end", "crittografia end-to-end", "ha creato il gruppo", "codice di sicurezza"),
    "pt": ("criptografadas de ponta a ponta", "encriptadas ponto a ponto", "criou o grupo", "criou este grupo", "código de segurança"),
    "nl": ("end-to-end versleuteld", "heeft de groep", "groep gemaakt", "beveiligingscode"),
}  # fmt: skip
LANGUAGES = tuple(sorted(MEDIA))
_KINDS = (
    ("image", re.compile(r"image|bild|imagen|immagine|imagem|afbeelding|kuva|obraz|görüntü|изображение|gambar|画像|图像|圖片|图片|사진|이미지|תמונה", re.I)),
    ("video", re.compile(r"video|vidéo|vídeo|wideo|видео|동영상|סרטון", re.I)),
    ("audio", re.compile(r"audio|áudio|voice|ääni|ljud|dźwięk|ses |аудио|오디오", re.I)),
    ("sticker", re.compile(r"sticker|figurinha", re.I)),
    ("gif", re.compile(r"gif", re.I)),
    ("contact", re.compile(r"contact|kontakt", re.I)),
    ("file", re.compile(r"document|dokument|documento", re.I)),
)
_SUFFIXES = {"jpg": "image", "jpeg": "image", "png": "image", "heic": "image", "webp": "sticker", "gif": "gif", "mp4": "video", "mov": "video", "3gp": "video"}
_SUFFIXES |= {"opus": "audio", "m4a": "audio", "mp3": "audio", "aac": "audio", "ogg": "audio", "vcf": "contact"}


def name_media(phrase: str) -> str:
    """What was left away: image, video, audio, …; "media" where the phrase does not say."""
    return next((kind for kind, pattern in _KINDS if pattern.search(phrase)), "media")


def name_file_kind(name: str) -> str:
    """What a file is, by its ending."""
    return _SUFFIXES.get(name.rpartition(".")[2].lower(), "file")
